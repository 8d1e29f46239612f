"""Graphs of models for inference."""

import torch
from torch import nn

from deploying.models import images, network
from orthosparse.deploying.copies import inference_copy
from orthosparse.deploying.tracing import calls_of, record_shapes, shape_of, traced


def test_what_does_nothing_in_eval_mode_is_dropped():
    class Checked(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.drop, self.same = nn.Linear(4, 4), nn.Dropout(0.5), nn.Identity()

        def forward(self, x):
            torch._assert(x.shape[1] == 4, "four features")
            return self.same(self.drop(self.fc(x)))

    graph, _ = traced(inference_copy(Checked(), None), ((torch.ones(1, 4),), {}), 0.0)
    assert [node.op for node in graph.graph.nodes] == ["placeholder", "call_module", "output"]


def test_shapes_are_those_of_the_example(generator):
    graph, _ = traced(inference_copy(network("plain", generator), None), ((images(generator),), {}), 0.0)
    assert [shape_of(node) for node in graph.graph.nodes][-2:] == [(2, 5), (2, 5)]
    record_shapes(graph, ((images(generator, batch=7),), {}))
    assert shape_of(calls_of(graph)["0"][0]) == (7, 10, 6, 6)


def test_a_model_that_cannot_be_traced_says_why(generator):
    graph, reason = traced(inference_copy(network("branching", generator), None), ((images(generator),), {}), 0.0)
    assert graph is None
    assert reason.startswith("cannot be traced by torch.fx: TraceError: ")


def test_a_trace_that_took_another_branch_is_refused():
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(2, 2)

        def forward(self, x):
            return self.fc(x) if isinstance(x, torch.Tensor) else self.fc(x) + 1

    graph, reason = traced(inference_copy(Named(), None), ((torch.ones(1, 2),), {}), 1e-6)
    assert graph is None
    assert reason == "its torch.fx trace computes something else"


def test_a_module_that_is_not_registered_cannot_be_traced():
    class Hidden(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.after = nn.Linear(2, 2), [nn.ReLU()]

        def forward(self, x):
            return self.after[0](self.fc(x))

    graph, reason = traced(inference_copy(Hidden(), None), ((torch.ones(1, 2),), {}), 0.0)
    assert graph is None
    assert reason == "cannot be traced by torch.fx: NameError: module is not installed as a submodule"
