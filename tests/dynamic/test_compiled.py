"""Rewiring a model that torch.compile runs: the same moves, out of two graphs."""

import copy

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch.nn import functional as F

import orthosparse
from contracts.states import assert_same


@pytest.fixture
def compiler(request):
    torch.compiler.reset()
    yield CompileCounterWithBackend(request.param)
    torch.compiler.reset()


def make():
    g = torch.Generator().manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, 5)).double()
    orthosparse.sparsify(model, 0.3, generator=g)
    return model


def batch(step):
    g = torch.Generator().manual_seed(100 + step)
    return torch.randn(6, 12, generator=g, dtype=torch.float64), torch.randint(5, (6,), generator=g)


def train(model, optimizer, rewirer, steps, pieces=1):
    """Train, and return the masks after every step."""
    seen = []
    for step in range(steps):
        x, y = batch(step)
        optimizer.zero_grad()
        for xs, ys in zip(x.chunk(pieces), y.chunk(pieces), strict=True):
            F.cross_entropy(model(xs), ys).div(pieces).backward()
        optimizer.step()
        rewirer.step()
        seen.append(orthosparse.masks_of(model))
    return seen


def rewired(model, grow, **how):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return optimizer, orthosparse.Rewirer(
        model, optimizer, grow=grow, steps=40, generator=torch.Generator().manual_seed(1), **how
    )


@pytest.mark.parametrize("compiler", ["eager", "aot_eager"], indirect=True)
@pytest.mark.parametrize("grow", ["gradient", "momentum", "random"])
def test_a_compiled_model_makes_the_moves_of_the_eager_one_out_of_two_graphs(compiler, grow):
    model = make()
    twin = copy.deepcopy(model)
    compiled = torch.compile(model, backend=compiler, fullgraph=True)
    mine = train(compiled, *rewired(model, grow, every=3), 13, pieces=2)
    theirs = train(twin, *rewired(twin, grow, every=3), 13, pieces=2)
    for ours, eager in zip(mine, theirs, strict=True):
        assert_same(ours, eager)
    assert any(not torch.equal(mine[0][name], mine[-1][name]) for name in mine[0])
    assert compiler.frame_count == (1 if grow == "random" else 2)  # four updates


@pytest.mark.parametrize("compiler", ["aot_eager"], indirect=True)
def test_a_layer_that_is_compiled_alone_is_heard_like_its_eager_neighbours(compiler):
    model = make()
    twin = copy.deepcopy(model)
    optimizer, rewirer = rewired(model, "gradient", every=2)
    parts = nn.Sequential(torch.compile(model[0], backend=compiler), model[1], model[2])
    for step in range(4):
        x, y = batch(step)
        optimizer.zero_grad()
        F.cross_entropy(parts(x), y).backward()
        optimizer.step()
        rewirer.step()
    theirs = train(twin, *rewired(twin, "gradient", every=2), 4)[-1]
    assert_same(theirs, orthosparse.masks_of(model))


def test_a_copy_made_while_gradients_are_gathered_does_not_gather():
    model = make()
    _, rewirer = rewired(model, "gradient", every=1)
    other = copy.deepcopy(model)
    x, y = batch(0)
    F.cross_entropy(other(x), y).backward()
    with pytest.raises(RuntimeError, match="layer '0' has no gradient"):
        rewirer.step()
    assert all("listener" not in vars(m) for m in other.modules())
