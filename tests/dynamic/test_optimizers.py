"""Rewiring under every optimizer of torch: new weights start as new parameters would."""

import inspect

import pytest
import torch
from torch import nn

import orthosparse
from orthosparse import masking

SPECIAL = {
    torch.optim.Optimizer,
    torch.optim.SparseAdam,  # takes sparse gradients only
    torch.optim.LBFGS,  # refused
}
EVERY = [
    kind
    for kind in vars(torch.optim).values()
    if inspect.isclass(kind) and issubclass(kind, torch.optim.Optimizer) and kind not in SPECIAL
]
OPTIONS = {
    torch.optim.SGD: {"momentum": 0.9},
    torch.optim.Adagrad: {"initial_accumulator_value": 0.7},
    torch.optim.RMSprop: {"momentum": 0.9, "centered": True},
}


def make(kind, **options):
    g = torch.Generator().manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 16, bias=False), nn.Tanh(), nn.Linear(16, 5, bias=False))
    orthosparse.sparsify(model, 0.3, generator=g)
    return model, kind(model.parameters(), lr=0.03, **options)


def train(model, optimizer, rewirer, steps):
    g = torch.Generator().manual_seed(7)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(6, 12, generator=g)).square().sum().backward()
        optimizer.step()
        rewirer.step()


def moved(model, before):
    """Per layer: parameter, entries that entered, entries that left."""
    layers = masking.masked_layers(model)
    return [(layers[n].original, m & ~before[n], before[n] & ~m) for n, m in orthosparse.masks_of(model).items()]


@pytest.mark.parametrize("kind", EVERY, ids=lambda kind: kind.__name__)
def test_the_optimizer_holds_of_moved_weights_what_it_holds_of_a_new_parameter(kind):
    options = OPTIONS.get(kind, {})
    model, optimizer = make(kind, **options)
    rewirer = orthosparse.Rewirer(model, optimizer, every=4, steps=40)
    before = orthosparse.masks_of(model)
    train(model, optimizer, rewirer, 4)
    for parameter, entered, left in moved(model, before):
        # One that has seen nothing yet: its first gradient is zero. Adamax then holds its eps.
        new = nn.Parameter(torch.zeros_like(parameter))
        new.grad = torch.zeros_like(new)
        other = kind([new], lr=0.03, **options)
        other.step()
        assert entered.any()
        for name, value in optimizer.state[parameter].items():
            if value.shape == parameter.shape:
                fresh = other.state[new][name]
                torch.testing.assert_close(value[entered | left], fresh[entered | left], atol=1e-7, rtol=0)


@pytest.mark.parametrize("kind", EVERY, ids=lambda kind: kind.__name__)
def test_new_weights_move_at_the_next_steps(kind):
    model, optimizer = make(kind, **OPTIONS.get(kind, {}))
    rewirer = orthosparse.Rewirer(model, optimizer, every=4, steps=8)
    before = orthosparse.masks_of(model)
    train(model, optimizer, rewirer, 4)
    grown = [entered for _, entered, _ in moved(model, before)]
    train(model, optimizer, rewirer, 2)
    for (parameter, _, _), entered in zip(moved(model, before), grown, strict=True):
        assert parameter[entered].abs().median() > 1e-5  # Rprop's least step, where it once began, is 1e-6


def test_weights_that_leave_with_the_first_masks_start_anew_under_rprop():
    weight = torch.linspace(-1, 1, 12).view(3, 4)
    model = nn.Sequential(nn.Linear(4, 3, bias=False))
    with torch.no_grad():
        model[0].weight.copy_(weight)
    optimizer = torch.optim.Rprop(model.parameters(), lr=0.5)
    for _ in range(3):
        model(torch.ones(2, 4)).square().sum().backward()
        optimizer.step()
    mask = weight > 0
    orthosparse.masking.attach(model, {"0": mask}, optimizer=optimizer)
    held = optimizer.state[masking.masked_layers(model)["0"].original]
    assert bool((held["step_size"][~mask] == 0.5).all())
    assert bool((held["step_size"][mask] != 0.5).any())
    assert bool((held["prev"][~mask] == 0).all())


def test_lbfgs_is_refused_since_its_memory_mixes_the_weights():
    model, optimizer = make(torch.optim.LBFGS)
    with pytest.raises(ValueError, match="optimizer: expected one with a state for each weight; got LBFGS"):
        orthosparse.Rewirer(model, optimizer, steps=10)
