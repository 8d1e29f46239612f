"""SynFlow against explicit products of absolute matrices."""

import copy
import logging
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from contracts.models import CLASSES, MODELS, refilled
from contracts.traces import differences, trace_of
from distributions.scored import flattened
from orthosparse.distributions.synflow import synflow
from orthosparse.layers import find_layers
from orthosparse.masks import counts_of


def linear_net(*widths, seed=0, activation=None):
    modules = []
    for a, b in pairwise(widths):
        modules += [nn.Linear(a, b, bias=False), *([activation()] if activation else [])]
    model = nn.Sequential(*(modules[:-1] if activation else modules))
    return refilled(model, torch.Generator().manual_seed(seed))


def explicit(matrices, density, rounds):
    """SynFlow from R = 1^T |W_L| ... |W_1| 1, whose derivative with respect to |W_l| is an outer product.

    The score of entry (i, j) of W_l is (1^T |W_L| ... |W_l+1|)_i |W_l|_ij (|W_l-1| ... |W_1| 1)_j.
    """
    matrices = [matrix.double().abs() for matrix in matrices]
    alive = [torch.ones_like(matrix, dtype=torch.bool) for matrix in matrices]
    total = sum(matrix.numel() for matrix in matrices)
    for number in range(1, rounds + 1):
        pruned = [matrix * mask for matrix, mask in zip(matrices, alive, strict=True)]
        scores = []
        for index, matrix in enumerate(pruned):
            before = torch.ones(pruned[0].shape[1], dtype=torch.float64)
            for earlier in pruned[:index]:
                before = earlier @ before
            after = torch.ones(pruned[-1].shape[0], dtype=torch.float64)
            for later in reversed(pruned[index + 1 :]):
                after = after @ later
            scores.append((after[:, None] * matrix * before[None, :]).flatten())
        flat = torch.cat(scores).masked_fill(~torch.cat([mask.flatten() for mask in alive]), -1)
        keep = round(total * density ** (number / rounds))
        mask = torch.zeros_like(flat, dtype=torch.bool)
        mask[flat.argsort(descending=True, stable=True)[:keep]] = True
        alive = [
            part.view(m.shape) for part, m in zip(mask.split([m.numel() for m in matrices]), matrices, strict=True)
        ]
    return torch.cat([mask.flatten() for mask in alive])


@pytest.mark.parametrize("activation", [None, nn.ReLU, nn.LeakyReLU, nn.SELU, nn.Identity])
@pytest.mark.parametrize(("density", "rounds"), [(0.5, 1), (0.2, 100), (0.15, 30)])
def test_masks_are_those_of_the_product_of_absolute_matrices(activation, density, rounds):
    """At densities where units still have several paths: along a single one scores are equal but for rounding.

    SELU's slope above 0 is a factor of every path, and so of every score.
    """
    model = linear_net(9, 12, 8, 11, 4, activation=activation)
    matrices = [layer.weight() for layer in find_layers(model).values()]
    masks = synflow(model, density, input_shape=[9], rounds=rounds)
    assert torch.equal(flattened(masks), explicit(matrices, density, rounds))


def test_a_hundred_rounds_are_the_default():
    model = linear_net(9, 12, 8, 4)
    matrices = [layer.weight() for layer in find_layers(model).values()]
    assert torch.equal(flattened(synflow(model, 0.1, input_shape=[9])), explicit(matrices, 0.1, 100))


def test_a_batch_serves_for_its_shape_alone():
    model = MODELS["cnn"].make()
    x, y = MODELS["cnn"].batch()
    expected = flattened(synflow(model, 0.2, input_shape=(3, 8, 8), rounds=5))
    assert torch.equal(flattened(synflow(model, 0.2, batch=(x, y), rounds=5)), expected)
    assert torch.equal(flattened(synflow(model, 0.2, batch=[(-x[:2], y[:2])], rounds=5)), expected)


def test_no_layer_is_emptied_while_every_layer_can_have_a_weight():
    """Down to one weight a layer (Tanaka et al., theorem 3), where one-shot scores empty layers long before."""
    model = linear_net(20, 30, 30, 30, 30, 5, activation=nn.ReLU)
    total = sum(parameter.numel() for parameter in model.parameters())
    assert counts_of(synflow(model, 5 / total, input_shape=[20])) == dict.fromkeys(["0", "2", "4", "6", "8"], 1)


def test_a_deep_net_does_not_overflow():
    """R is near 10^62 here, above what float32 holds."""
    model = linear_net(*[100] * 70, activation=nn.ReLU)
    with torch.no_grad():
        flow = copy.deepcopy(model)
        for parameter in flow.parameters():
            parameter.abs_()
        assert not torch.isfinite(flow(torch.ones(1, 100))).all()
    masks = synflow(model, 0.1, input_shape=[100], rounds=3)
    assert sum(counts_of(masks).values()) == 69 * 1000


def test_a_weight_that_is_gone_does_not_come_back():
    """The sparsest rounds leave paths that end nowhere: their zero scores tie with those of removed weights."""
    model = linear_net(6, 7, 7, 3, activation=nn.ReLU)
    seen = []
    for module in model:
        if isinstance(module, nn.Linear):
            module.register_forward_hook(lambda module, *_: seen.append(module.weight.detach() != 0))
    synflow(model, 0.04, input_shape=[6], rounds=20)
    rounds = [torch.cat([mask.flatten() for mask in seen[i : i + 3]]) for i in range(0, len(seen), 3)][-20:]
    assert not any((later & ~earlier).any() for earlier, later in pairwise(rounds))
    assert int(rounds[-1].sum()) < 10


def test_statistics_that_have_moved_do_no_harm():
    """A running mean is not subtracted: it could turn the flow negative."""
    model = MODELS["batch_norm"].make()
    expected = flattened(synflow(model, 0.2, input_shape=(3, 8, 8), rounds=5))
    for module in (model[1], model[4], model[10]):
        module.running_mean += 1000
    assert torch.equal(flattened(synflow(model, 0.2, input_shape=(3, 8, 8), rounds=5)), expected)


def test_parameters_outside_the_layers_are_made_positive_too():
    """Flipping the signs of scales and biases changes nothing."""
    model = MODELS["batch_norm"].make()
    expected = flattened(synflow(model, 0.2, input_shape=(3, 8, 8), rounds=5))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.neg_()
    assert torch.equal(flattened(synflow(model, 0.2, input_shape=(3, 8, 8), rounds=5)), expected)


def test_the_released_code_scores_log_probabilities():
    model = linear_net(9, 12, CLASSES)
    first, second = (layer.weight().double().abs().requires_grad_() for layer in find_layers(model).values())
    torch.log_softmax(second @ (first @ torch.ones(9, dtype=torch.float64)), 0).sum().backward()
    scores = torch.cat([(matrix * matrix.grad).abs().flatten() for matrix in (first, second)])
    expected = scores >= scores.sort(descending=True).values[50]  # 168 - int(0.7 * 168) of them
    released = flattened(synflow(model, 0.3, input_shape=[9], rounds=1, compat="paper-code"))
    assert torch.equal(released, expected)
    assert not torch.equal(released, flattened(synflow(model, 0.3, input_shape=[9], rounds=1)))


def test_the_released_code_keeps_what_its_rounding_leaves_in_every_round():
    """Rounds by hand, each N - int((1 - d ** (t / T)) N) of N = 168 weights."""
    model = nn.Sequential(nn.Linear(9, 12), nn.Linear(12, CLASSES)).double()
    first, second = (layer.weight.detach().abs() for layer in model)
    kept, counts = [torch.ones_like(first), torch.ones_like(second)], []
    bias = [layer.bias.detach().abs() for layer in model]
    for number in (1, 2, 3):
        leaves = [(weight * mask).requires_grad_() for weight, mask in zip((first, second), kept, strict=True)]
        flow = leaves[1] @ (leaves[0] @ torch.ones(9, dtype=torch.float64) + bias[0]) + bias[1]
        torch.log_softmax(flow, 0).sum().backward()
        scores = torch.cat([(leaf * leaf.grad).detach().abs().flatten() for leaf in leaves])
        scores[torch.cat([mask.flatten() for mask in kept]) == 0] = -1
        counts.append(168 - int((1 - 0.2 ** (number / 3)) * 168))
        alive = torch.zeros_like(scores)
        alive[scores.sort(descending=True, stable=True).indices[: counts[-1]]] = 1
        kept = [part.view_as(mask) for part, mask in zip(alive.split([108, 60]), kept, strict=True)]
    released = flattened(synflow(model, 0.2, input_shape=[9], rounds=3, compat="paper-code"))
    assert int(released.sum()) == counts[-1] == 34
    assert torch.equal(released, torch.cat([mask.flatten() for mask in kept]).bool())


class Functional(nn.Module):
    """Two linear layers with a function between them and another behind them."""

    def __init__(self, between, behind=lambda x: x):
        super().__init__()
        self.first, self.second = nn.Linear(9, 12), nn.Linear(12, CLASSES)
        self.between, self.behind = between, behind

    def forward(self, x):
        return self.behind(self.second(self.between(self.first(x))))


@pytest.mark.parametrize(
    ("between", "behind"),
    [
        (torch.tanh, F.relu),
        (torch.sigmoid, F.relu),
        (lambda x: F.hardtanh(x, 0, 0.5), F.relu),
        (lambda x: F.layer_norm(x, (12,)), lambda x: x),
        (F.softplus, lambda x: x),
        (F.relu, lambda x: torch.softmax(x, 1)),
        (F.relu, lambda x: torch.log_softmax(x, 1)),
        (F.relu, torch.sigmoid),
        (torch.neg, lambda x: x),
        (lambda x: x - 0.9 * x.flip(1), lambda x: x),
    ],
)
def test_functions_under_which_the_flow_is_no_flow_are_refused_without_a_trace(between, behind):
    model = refilled(Functional(between, behind), torch.Generator().manual_seed(0))
    before = trace_of(model)
    with pytest.raises(ValueError, match="model: synflow needs"):
        synflow(model, 0.3, input_shape=[9])
    assert differences(before, trace_of(model)) == []


@pytest.mark.parametrize(
    "between", [F.relu, F.leaky_relu, F.selu, F.elu, F.gelu, F.silu, F.mish, F.hardswish, lambda x: x]
)
def test_activations_that_pass_positive_numbers_on_are_served(between):
    model = refilled(Functional(between), torch.Generator().manual_seed(0))
    assert sum(counts_of(synflow(model, 0.3, input_shape=[9], rounds=5)).values()) == 50


@pytest.mark.parametrize(
    "module",
    [nn.Tanh(), nn.Hardtanh(), nn.ReLU6(), nn.Softsign(), nn.LayerNorm(12), nn.GroupNorm(2, 12), nn.LogSoftmax(1)],
)
def test_modules_that_squash_are_named(module):
    model = Functional(module)
    with pytest.raises(ValueError, match=f"module 'between' is a {type(module).__name__}"):
        synflow(model, 0.3, input_shape=[9])


class Gated(nn.Module):
    """A squeeze-and-excitation gate, as EfficientNet has them."""

    def __init__(self):
        super().__init__()
        self.conv, self.reduce, self.expand = nn.Conv2d(3, 6, 3), nn.Conv2d(6, 2, 1), nn.Conv2d(2, 6, 1)
        self.head = nn.Linear(6, CLASSES)

    def forward(self, x):
        x = F.silu(self.conv(x))
        gate = self.expand(F.silu(self.reduce(x.mean((2, 3), keepdim=True)))).sigmoid()
        return self.head((x * gate).mean((2, 3)))


def test_gates_are_served():
    model = refilled(Gated(), torch.Generator().manual_seed(0))
    assert sum(counts_of(synflow(model, 0.3, input_shape=(3, 8, 8), rounds=5)).values()) == 65


def test_layers_that_no_flow_reaches_are_logged(caplog):
    model = refilled(nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)), torch.Generator())
    nn.init.zeros_(model[1].weight)
    nn.init.constant_(model[1].bias, 0.5)
    with caplog.at_level(logging.WARNING):
        masks = synflow(model, 0.3, input_shape=[6], rounds=5)
    assert counts_of(masks) == {"0": 0, "3": 22}
    assert "no flow reaches these layers, so synflow removes all their weights: 0 (" in caplog.text


def test_no_flow_at_all_is_refused():
    model = linear_net(6, 8, 3)
    nn.init.zeros_(model[1].weight)
    with pytest.raises(ValueError, match="model: synflow needs a flow above 0 that float64 holds"):
        synflow(model, 0.3, input_shape=[6])


def test_what_is_no_tensor_is_refused():
    model = MODELS["mlp"].make()
    x, y = MODELS["mlp"].batch()
    with pytest.raises(ValueError, match="batch: synflow takes models of one input tensor"):
        synflow(model, 0.3, batch=({"input": x}, y))
    model.forward = lambda x: {"logits": x}
    with pytest.raises(ValueError, match="model: expected one tensor of logits"):
        synflow(model, 0.3, batch=(x, y))


@pytest.mark.parametrize(
    ("input_shape", "error"),
    [(8, TypeError), ("8", TypeError), ([8.0], TypeError), ([True], TypeError), ({12}, TypeError), ([-8], ValueError)],
)
def test_an_input_shape_that_is_none_is_named(input_shape, error):
    with pytest.raises(error, match="input_shape: expected the sides of one sample, integers of at least 1; got"):
        synflow(MODELS["mlp"].make(), 0.3, input_shape=input_shape)


@pytest.mark.parametrize("input_shape", [torch.Size([12]), (np.int64(12),), range(12, 13)])
def test_any_sequence_of_integers_is_an_input_shape(input_shape):
    expected = synflow(MODELS["mlp"].make(), 0.3, input_shape=[12], rounds=2)
    assert torch.equal(
        flattened(synflow(MODELS["mlp"].make(), 0.3, input_shape=input_shape, rounds=2)), flattened(expected)
    )


def test_autocast_does_not_lower_the_precision():
    model = MODELS["cnn"].make()
    expected = flattened(synflow(model, 0.2, input_shape=(3, 8, 8), rounds=5))
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(flattened(synflow(model, 0.2, input_shape=(3, 8, 8), rounds=5)), expected)
