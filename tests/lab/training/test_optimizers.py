import dataclasses

import pytest
import torch
from torch import nn

from orthosparse.lab.training.optimizers import is_fused, make_optimizer
from orthosparse.lab.training.recipe import Recipe

RECIPE = Recipe(epochs=1, lr=0.1, weight_decay=0.01)
LAMB = pytest.param("lamb", marks=pytest.mark.torchvision)


def _parameters(generator):
    return [nn.Parameter(torch.randn(shape, generator=generator)) for shape in ((4, 3), (4,))]


def test_sgd_is_torchs_nesterov_sgd_with_decay_on_everything(generator):
    ours = _parameters(generator)
    theirs = [nn.Parameter(p.detach().clone()) for p in ours]
    optimizers = [
        make_optimizer(RECIPE, ours),
        torch.optim.SGD(theirs, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    ]
    for _ in range(5):
        for parameters, optimizer in zip((ours, theirs), optimizers, strict=True):
            optimizer.zero_grad()
            sum((p**2).sum() for p in parameters).backward()
            optimizer.step()
    torch.testing.assert_close(ours, theirs)


def test_the_rate_can_change_in_place(generator):
    parameters = _parameters(generator)
    optimizer = make_optimizer(RECIPE, parameters)
    optimizer.param_groups[0]["lr"].fill_(0.0)
    before = [p.detach().clone() for p in parameters]
    sum((p**2).sum() for p in parameters).backward()
    optimizer.step()
    torch.testing.assert_close(parameters, before)


@pytest.mark.parametrize("name", ["sgd", "adamw", LAMB])
def test_decay_leaves_vectors_out_where_the_recipe_says_so(generator, name):
    recipe = dataclasses.replace(RECIPE, optimizer=name, decay_vectors=False)
    matrices, vectors = make_optimizer(recipe, _parameters(generator)).param_groups
    assert (matrices["weight_decay"], vectors["weight_decay"]) == (0.01, 0.0)
    assert [p.dim() for group in (matrices, vectors) for p in group["params"]] == [2, 1]


@pytest.mark.parametrize("name", ["sgd", "adamw", LAMB])
def test_only_optimizers_with_a_rate_on_the_device_are_fused(generator, name):
    optimizer = make_optimizer(dataclasses.replace(RECIPE, optimizer=name), _parameters(generator))
    assert is_fused(optimizer) == (name != "lamb")


@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_a_fused_optimizer_that_is_told_of_an_infinity_changes_nothing(generator, name):
    parameters = _parameters(generator)
    optimizer = make_optimizer(dataclasses.replace(RECIPE, optimizer=name), parameters)
    before = [p.detach().clone() for p in parameters]
    for found, moved in ((1.0, False), (0.0, True)):
        optimizer.found_inf = torch.tensor(found)
        sum((p**2).sum() for p in parameters).backward()
        optimizer.step()
        assert any(not torch.equal(p, b) for p, b in zip(parameters, before, strict=True)) == moved
