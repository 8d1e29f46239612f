"""Masks of whole blocks move by blocks, and 2:4 masks do not move."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import orthosparse
from contracts.states import assert_same, state_of
from orthosparse import masking
from orthosparse.structures import grid_of, structure_of, tiled

GROW = ("gradient", "random", "momentum")
BLOCKS = {"0": 32, "2": 16, "4": 1}


def make(scheme="eoi", dtype=torch.float32):
    g = torch.Generator().manual_seed(0)
    model = nn.Sequential(nn.Linear(128, 192), nn.Tanh(), nn.Linear(192, 144), nn.Tanh(), nn.Linear(144, 10)).to(dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=g) * 0.1)
    orthosparse.sparsify(model, 0.3, scheme=scheme, structure="block:32", generator=g)
    return model


def train(model, optimizer, rewirer, steps, start=0):
    for step in range(start, start + steps):
        g = torch.Generator().manual_seed(step)
        x, y = torch.randn(16, 128, generator=g), torch.randint(10, (16,), generator=g)
        optimizer.zero_grad()
        F.cross_entropy(model(x.to(model[0].bias.dtype)), y).backward()
        optimizer.step()
        rewirer.step()


def adam(model):
    return torch.optim.Adam(model.parameters(), lr=0.01)


@pytest.mark.parametrize("grow", GROW)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_whole_blocks_move_and_their_number_stays(grow, dtype, generator):
    model = make(dtype=dtype)
    before, optimizer = orthosparse.masks_of(model), adam(model)
    rewirer = orthosparse.Rewirer(model, optimizer, grow=grow, every=2, steps=20, generator=generator)
    train(model, optimizer, rewirer, 9)
    assert rewirer.updates == 4
    for name, mask in orthosparse.masks_of(model).items():
        block = BLOCKS[name]
        assert torch.equal(tiled(grid_of(mask, block), block, mask.shape), mask)
        assert int(mask.sum()) == int(before[name].sum())
        assert not torch.equal(mask, before[name])
        assert rewirer.moved[name] % block**2 == 0
        assert bool((masking.masked_layers(model)[name].original[~mask] == 0).all())


def test_blocks_of_smallest_norm_go_and_those_of_largest_gradient_norm_come():
    model = make("base")
    masked = masking.masked_layers(model)["0"]
    before = masked.holder.mask.clone()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    rewirer = orthosparse.Rewirer(model, optimizer, every=1, fraction=0.5, steps=1000, until=1.0)
    # The dense gradient by hand: that of the layer's output times its input.
    g = torch.Generator().manual_seed(0)
    x, y = torch.randn(16, 128, generator=g), torch.randint(10, (16,), generator=g)
    outputs = model[0](x).detach().requires_grad_()
    (slope,) = torch.autograd.grad(F.cross_entropy(model[1:](outputs), y), outputs)
    gradient, weight = slope.T @ x, masked.original.detach().clone()
    train(model, optimizer, rewirer, 1)

    def norms(values):
        return values.view(6, 32, 4, 32).square().sum((1, 3))

    active = grid_of(before, 32)
    number = round(0.5 * int(active.sum()))
    kept = active.clone()
    order = sorted(active.nonzero().tolist(), key=lambda index: float(norms(weight)[*index]))
    for index in order[:number]:
        kept[*index] = False
    after = kept.clone()
    order = sorted((~kept).nonzero().tolist(), key=lambda index: -float(norms(gradient)[*index]))
    for index in order[:number]:
        after[*index] = True
    assert torch.equal(grid_of(masked.holder.mask, 32), after)


@pytest.mark.parametrize("grow", GROW)
def test_blocks_are_known_after_loading_and_a_resumed_run_makes_the_same_moves(grow):
    def rewired(model, optimizer):
        return orthosparse.Rewirer(model, optimizer, grow=grow, every=2, steps=40, generator=torch.Generator())

    model = make()
    optimizer = adam(model)
    rewirer = rewired(model, optimizer)
    train(model, optimizer, rewirer, 5)
    saved = state_of(model)
    states = copy.deepcopy((optimizer.state_dict(), rewirer.state_dict()))
    other = nn.Sequential(nn.Linear(128, 192), nn.Tanh(), nn.Linear(192, 144), nn.Tanh(), nn.Linear(144, 10))
    orthosparse.load_sparse(other, saved)
    resumed = adam(other)
    again = rewired(other, resumed)
    resumed.load_state_dict(states[0])
    again.load_state_dict(states[1])
    train(model, optimizer, rewirer, 4, start=5)
    train(other, resumed, again, 4, start=5)
    assert_same(orthosparse.masks_of(other), orthosparse.masks_of(model))


def test_two_of_four_do_not_move_not_even_after_loading():
    model, other = (nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 8)) for _ in range(2))
    orthosparse.sparsify(model, 0.5, structure="2:4")
    orthosparse.load_sparse(other, model.state_dict())
    for each in (model, other):
        with pytest.raises(ValueError, match=r"model: expected masks that may move; '0' has two of any four"):
            orthosparse.Rewirer(each, adam(each), steps=100)
    assert structure_of(orthosparse.masks_of(other)["0"]) == "2:4"
