"""GraSP against an explicit Hessian, and against differences of plain backward passes."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from contracts.models import MODELS
from distributions.scored import doubled, flattened
from orthosparse.counts import count_of
from orthosparse.distributions.grasp import grasp
from orthosparse.layers import find_layers

IN, HIDDEN, OUT = 5, 7, 4


def tiny_net():
    """A tanh network without biases, its batch, and its logits as a function of one flat vector of all weights."""
    generator = torch.Generator().manual_seed(3)
    model = nn.Sequential(nn.Linear(IN, HIDDEN, bias=False), nn.Tanh(), nn.Linear(HIDDEN, OUT, bias=False)).double()
    theta = torch.randn(IN * HIDDEN + HIDDEN * OUT, generator=generator, dtype=torch.float64)
    with torch.no_grad():
        model[0].weight.copy_(theta[: IN * HIDDEN].view(HIDDEN, IN))
        model[2].weight.copy_(theta[IN * HIDDEN :].view(OUT, HIDDEN))
    x = torch.randn(6, IN, generator=generator, dtype=torch.float64)
    y = torch.randint(OUT, (6,), generator=generator)

    def logits(flat, inputs):
        first, second = flat[: IN * HIDDEN].view(HIDDEN, IN), flat[IN * HIDDEN :].view(OUT, HIDDEN)
        return torch.tanh(inputs @ first.T) @ second.T

    return model, theta, (x, y), logits


def explicit_scores(theta, loss):
    hessian = torch.autograd.functional.hessian(loss, theta)
    return theta * (hessian @ torch.autograd.functional.jacobian(loss, theta))


def largest(scores, count):
    expected = torch.zeros_like(scores, dtype=torch.bool)
    expected[scores.argsort(descending=True, stable=True)[:count]] = True
    return expected


@pytest.mark.parametrize("temperature", [200.0, 3.0, 1.0])
@pytest.mark.parametrize("density", [0.1, 0.4, 0.5, 0.9])
def test_the_largest_entries_of_theta_times_hessian_times_gradient_are_kept(temperature, density):
    model, theta, (x, y), logits = tiny_net()
    scores = explicit_scores(theta, lambda flat: F.cross_entropy(logits(flat, x) / temperature, y))
    masks = grasp(model, density, batch=(x, y), temperature=temperature)
    assert torch.equal(flattened(masks), largest(scores, count_of(density, len(theta))))


def test_the_temperature_is_200_by_default_and_matters():
    model, _, batch, _ = tiny_net()
    default, same, other = (
        grasp(model, 0.4, batch=batch, **own) for own in ({}, {"temperature": 200}, {"temperature": 1})
    )
    assert torch.equal(flattened(default), flattened(same))
    assert not torch.equal(flattened(default), flattened(other))


def test_many_batches_are_one_loss():
    """g is summed over all batches before any Hessian is applied to it."""
    model, theta, (x, y), logits = tiny_net()
    batches = [(x[:2], y[:2]), (x[2:], y[2:])]
    scores = explicit_scores(theta, lambda flat: sum(F.cross_entropy(logits(flat, a) / 200, b) for a, b in batches))
    apart = sum(
        explicit_scores(theta, lambda flat, a=a, b=b: F.cross_entropy(logits(flat, a) / 200, b)) for a, b in batches
    )
    expected = largest(scores, 25)
    assert not torch.equal(expected, largest(apart, 25))
    assert torch.equal(flattened(grasp(model, 25 / len(theta), batch=batches)), expected)
    assert torch.equal(flattened(grasp(model, 25 / len(theta), batch=iter(batches))), expected)


def gradients(model, loss_of):
    model.zero_grad()
    loss_of(model).backward()
    return {name: layer.parameter().grad.clone() for name, layer in find_layers(model).items()}


@pytest.mark.parametrize("model_name", MODELS)
def test_scores_are_differences_of_gradients_along_the_gradient(model_name):
    """H g = (g(theta + h g) - g(theta - h g)) / 2 h, from plain backward passes of copies in float64."""
    model, (x, y) = doubled(model_name)

    def loss_of(m):
        return F.cross_entropy(m(x) / 10, y)

    slope = gradients(copy.deepcopy(model), loss_of)
    step = 1e-4 / torch.cat([g.flatten() for g in slope.values()]).norm()
    sides = []
    for sign in (1, -1):
        moved = copy.deepcopy(model)
        with torch.no_grad():
            for name, layer in find_layers(moved).items():
                layer.parameter().add_(slope[name], alpha=sign * float(step))
        sides.append(gradients(moved, loss_of))
    layers = find_layers(model)
    product = {name: (sides[0][name] - sides[1][name]) / (2 * step) for name in layers}
    scores = torch.cat([(layers[name].weight() * product[name]).flatten() for name in layers])
    scores[scores.abs() < 1e-7 * scores.abs().max()] = 0  # dead units: what differencing leaves there is rounding
    for density in (0.2, 0.6):
        masks = grasp(model, density, batch=(x, y), temperature=10)
        differing = int((flattened(masks) ^ largest(scores, count_of(density, len(scores)))).sum())
        assert differing == 0


def test_the_released_code_keeps_the_other_end():
    model, theta, batch, _ = tiny_net()
    assert len(theta) % 2 == 1
    right, released = (flattened(grasp(model, 0.1, batch=batch, compat=compat)) for compat in (None, "paper-code"))
    assert not (right & released).any()
    half = 31 / 63  # 31 kept by one, int(63 * 32 / 63) = 32 largest dropped by the other
    right, released = (flattened(grasp(model, half, batch=batch, compat=compat)) for compat in (None, "paper-code"))
    assert int(right.sum()) == int(released.sum()) == 31
    assert not (right & released).any()


def test_the_released_code_drops_a_weight_even_at_density_one():
    model, theta, (x, y), logits = tiny_net()
    scores = explicit_scores(theta, lambda flat: F.cross_entropy(logits(flat, x) / 200, y))
    released = flattened(grasp(model, 1.0, batch=(x, y), compat="paper-code"))
    assert (~released).nonzero().flatten().tolist() == [int(scores.argmax())]


def test_a_loss_that_is_linear_in_the_weights_ties_every_score():
    model = nn.Linear(6, 2, bias=False)
    x = torch.ones(3, 6)
    masks = grasp(model, 0.5, batch=(x, None), loss=lambda outputs, _: outputs.sum())
    assert masks["weight"].tolist() == [[True] * 6, [False] * 6]


def test_the_two_passes_meet_the_same_dropout():
    model, (x, y) = MODELS["batch_norm"].make(), MODELS["batch_norm"].batch()
    dropped = []
    model[6].register_forward_hook(lambda module, inputs, output: dropped.append(output == 0))
    grasp(model, 0.3, batch=[(x, y), (x, y)], generator=torch.Generator().manual_seed(0))
    first, second, first_again, second_again = dropped
    assert torch.equal(first, first_again)
    assert torch.equal(second, second_again)
    assert not torch.equal(first, second)


@pytest.mark.parametrize("temperature", ["a", None, True, [1.0]])
def test_a_temperature_that_is_no_number_is_refused(temperature):
    with pytest.raises(TypeError, match=r"temperature: expected a positive number; got .* \(\w+\)"):
        grasp(MODELS["mlp"].make(), 0.5, batch=MODELS["mlp"].batch(), temperature=temperature)


@pytest.mark.parametrize("temperature", [0, -1.0, float("nan"), float("inf")])
def test_a_temperature_that_is_not_positive_is_refused(temperature):
    with pytest.raises(ValueError, match="temperature: expected a positive number; got"):
        grasp(MODELS["mlp"].make(), 0.5, batch=MODELS["mlp"].batch(), temperature=temperature)


def test_a_model_that_cannot_be_differentiated_twice_is_named():
    class Distances(nn.Module):
        def forward(self, x):
            return torch.cdist(x, torch.eye(8), p=3.0)

    model = nn.Sequential(nn.Linear(12, 8), Distances(), nn.Linear(8, 5))
    with pytest.raises(ValueError, match=r"model: expected one that can be differentiated twice \(.*cdist"):
        grasp(model, 0.5, batch=MODELS["mlp"].batch())


def test_outputs_that_are_no_tensor_are_left_to_the_users_loss():
    model, (x, y) = MODELS["mlp"].make(), MODELS["mlp"].batch()
    expected = grasp(model, 0.3, batch=(x, y), temperature=10)
    layers, forward = find_layers(model), model.forward
    model.forward = lambda x: {"logits": forward(x)}
    with pytest.raises(ValueError, match=r"loss: cannot be computed .* temperature divides one tensor; pass 1"):
        grasp(model, 0.3, layers=layers, batch=(x, y))
    masks = grasp(
        model, 0.3, layers=layers, batch=(x, y), temperature=1, loss=lambda o, y: F.cross_entropy(o["logits"] / 10, y)
    )
    assert torch.equal(flattened(masks), flattened(expected))
