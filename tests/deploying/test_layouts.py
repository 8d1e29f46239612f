"""Features first where only layers of entries read."""

import torch
from torch import fx, nn

from orthosparse.deploying.layouts import keep_features_first
from orthosparse.deploying.modules import EntriesLinear


def entries(inputs, outputs):
    return EntriesLinear(nn.Linear(inputs, outputs).requires_grad_(False))


class Leaves(fx.Tracer):
    def is_leaf_module(self, module, name):
        return isinstance(module, EntriesLinear) or super().is_leaf_module(module, name)


def traced(model):
    return fx.GraphModule(model, Leaves().trace(model))


def test_results_lie_features_first_between_layers_of_entries_alone():
    graph = traced(nn.Sequential(entries(6, 5), nn.ReLU(), entries(5, 4), nn.Softmax(-1), entries(4, 3)))
    x = torch.randn(7, 6)
    expected = graph(x)
    keep_features_first(graph)
    assert [graph.get_submodule(name).features_first for name in ("0", "2", "4")] == [True, False, False]
    torch.testing.assert_close(graph(x), expected)


def test_a_result_that_something_else_reads_too_is_contiguous():
    class Branched(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = entries(4, 4), entries(4, 4)

        def forward(self, x):
            y = self.one(x)
            return y + self.two(y.relu())

    graph = traced(Branched())
    keep_features_first(graph)
    assert not graph.get_submodule("one").features_first
