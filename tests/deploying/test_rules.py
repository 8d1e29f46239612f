"""Rules are given to the operations that keep channels apart, and to no others."""

import operator

import torch
from torch import fx, nn
from torch.nn import functional

from orthosparse.deploying.rules import is_pointwise, rules_of
from orthosparse.deploying.tracing import record_shapes


def rules(forward, *layers, shape=(2, 4, 6, 6)):
    """The rules of a function of x and layers, by what its nodes call, and the graph."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(layers)

        def forward(self, x):
            return forward(x, *self.layers)

    graph = fx.symbolic_trace(Model().eval())
    record_shapes(graph, ((torch.randn(shape),), {}))
    return {str(getattr(node.target, "__name__", node.target)): rule for node, rule in rules_of(graph).items()}


def conv(outputs=4, **options):
    return nn.Conv2d(4, outputs, 1, **options)


def test_channels_lie_on_side_one_of_pictures_and_on_the_last_of_tokens():
    found = rules(lambda x, c, f: f(c(x).flatten(2)), conv(8), nn.Linear(36, 5))
    assert (found["layers.0"].axis, found["layers.0"].size) == (1, 8)
    assert (found["layers.1"].axis, found["layers.1"].size) == (2, 5)
    assert "flatten" not in found  # of pixels alone: channels are where they were, but no rule is written for it


def test_activations_pools_sums_and_gates_have_rules():
    def forward(x, one, two, pool):
        y = functional.relu(one(x)) + two(x)
        return pool(y * torch.sigmoid(y.mean((2, 3), keepdim=True))).flatten(1)

    found = rules(forward, conv(), conv(), nn.MaxPool2d(2))
    assert set(found) == {"layers.0", "layers.1", "layers.2", "relu", "add", "mean", "sigmoid", "mul", "flatten"}
    assert found["flatten"].repeats == 9


def test_what_mixes_or_moves_channels_has_none():
    mixed = {
        "softmax": lambda x, c: torch.softmax(c(x), 1),
        "permute": lambda x, c: c(x).permute(0, 2, 3, 1),
        "mean over channels": lambda x, c: c(x).mean(1),
        "mean over samples": lambda x, c: c(x).mean((0, 2)),
        "cat": lambda x, c: torch.cat([c(x), x], 1),
        "sum that broadcasts": lambda x, c: c(x) + x.mean(1, keepdim=True),
        "scaled sum": lambda x, c: torch.add(c(x), x, alpha=2),
        "view of given sizes": lambda x, c: c(x).view(2, 144),
        "groups": lambda x, c: nn.functional.group_norm(c(x), 2),
    }
    for name, forward in mixed.items():
        assert set(rules(forward, conv())) == {"layers.0"}, name


def test_pools_over_the_features_of_a_linear_layer_have_none():
    def pooled(pool, forward=lambda x, f, pool: pool(f(x))):
        return set(rules(forward, nn.Linear(6, 8), pool))

    for pool in (nn.MaxPool1d(2), nn.MaxPool1d(3, 1, 1), nn.AdaptiveAvgPool1d(4), nn.AvgPool1d(3, 1, 1)):
        assert pooled(pool, lambda x, f, pool: pool(f(x[0]))) == {"layers.0"}
    for pool in (nn.MaxPool2d(2), nn.AdaptiveMaxPool2d(3), nn.AvgPool2d(2)):
        assert pooled(pool) == {"layers.0"}
    assert set(rules(lambda x, f: functional.adaptive_avg_pool2d(f(x), 3), nn.Linear(6, 8))) == {"layers.0"}


def test_depthwise_layers_go_channel_by_channel_and_other_groups_have_no_rule():
    assert "layers.0" in rules(lambda x, c: c(x), conv(groups=4))
    assert rules(lambda x, c: c(x), conv(groups=2)) == {}
    assert rules(lambda x, c: c(x), conv(8, groups=4)) == {}


def test_a_layer_that_is_called_twice_has_no_rule():
    assert rules(lambda x, c: c(c(x)), conv()) == {}
    norm = nn.BatchNorm2d(4, affine=False)  # without parameters, but with statistics
    assert set(rules(lambda x, c, n: n(n(c(x))), conv(), norm)) == {"layers.0"}


def test_pointwise_nodes_are_told_by_what_they_call():
    graph = fx.Graph()
    x = graph.placeholder("x")
    assert is_pointwise(graph.call_function(functional.gelu, (x,)), None)
    assert is_pointwise(graph.call_method("relu", (x,)), None)
    assert is_pointwise(graph.call_module("act", (x,)), nn.SiLU())
    assert not is_pointwise(graph.call_module("act", (x,)), nn.Softmax(-1))
    assert not is_pointwise(graph.call_function(operator.add, (x, x)), None)
