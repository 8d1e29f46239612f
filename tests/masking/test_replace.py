"""Masks in the place of others, and what an optimizer then forgets."""

import pytest
import torch

from contracts.states import assert_same, state_of
from masking.models import sparse_mlp, x_of
from orthosparse import masking
from orthosparse.layers import leaf


def test_what_leaves_and_what_enters_is_zero_and_the_rest_is_kept(generator):
    model, masks = sparse_mlp(generator)
    parameter = leaf(model[0], "weight")
    with torch.no_grad():
        parameter[~masks["0"]] = 5.0  # drifted, by whatever means
    before, new = parameter.detach().clone(), torch.rand(7, 5, generator=generator) < 0.5
    buffer = model[0].weight_mask
    masking.replace_masks(model, {"0": new})
    assert torch.equal(parameter, before * (new & masks["0"]))
    assert torch.equal(masking.masks_of(model)["0"], new)
    assert torch.equal(masking.masks_of(model)["2.0"], masks["2.0"])
    assert model[0].weight_mask is buffer  # in place: compiled graphs and DDP hold on to it


@pytest.mark.parametrize("kind", ["sgd", "adam"])
def test_an_optimizer_that_is_named_forgets_what_leaves_and_enters(kind, generator):
    model, masks = sparse_mlp(generator)
    make = {
        "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
        "adam": lambda p: torch.optim.Adam(p, lr=0.1, amsgrad=True),
    }[kind]
    optimizer = make(model.parameters())
    x = x_of(generator, 4, 5)
    model(x).square().sum().backward()
    optimizer.step()
    new = torch.rand(7, 5, generator=generator) < 0.5
    masking.replace_masks(model, {"0": new}, optimizer=optimizer)
    parameter, stayed = leaf(model[0], "weight"), new & masks["0"]
    held = [value for value in optimizer.state[parameter].values() if value.shape == parameter.shape]
    assert len(held) == (1 if kind == "sgd" else 3)
    assert all(value[~stayed].count_nonzero() == 0 for value in held)
    assert all(value[stayed].count_nonzero() > 0 for value in held)
    for _ in range(3):
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()
    assert parameter[~new].count_nonzero() == 0
    assert parameter[new & ~masks["0"]].count_nonzero() > 0


def test_a_momentum_that_is_not_forgotten_stays_out_of_the_model_and_its_state_dict(generator):
    model, masks = sparse_mlp(generator)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x = x_of(generator, 4, 5)
    model(x).square().sum().backward()
    optimizer.step()
    masking.replace_masks(model, {"0": ~masks["0"]})
    optimizer.zero_grad()
    model(x).square().sum().backward()
    optimizer.step()
    assert leaf(model[0], "weight")[masks["0"]].count_nonzero() > 0  # the momentum still pushes
    assert model[0].weight[masks["0"]].count_nonzero() == 0
    assert model.state_dict()["0.weight"][masks["0"]].count_nonzero() == 0


@pytest.mark.parametrize("optimizer", ["adam", torch.optim.Adam, 3])
def test_what_is_no_optimizer_is_named_and_nothing_changes(optimizer, generator):
    model, masks = sparse_mlp(generator)
    before = state_of(model)
    with pytest.raises(TypeError, match=r"^optimizer: expected a torch\.optim\.Optimizer"):
        masking.replace_masks(model, {name: ~mask for name, mask in masks.items()}, optimizer=optimizer)
    with pytest.raises(TypeError, match=r"^optimizer: expected a torch\.optim\.Optimizer"):
        masking.attach(model, {"3": torch.ones(3, 6, dtype=torch.bool)}, optimizer=optimizer)
    assert_same(before, model.state_dict())
    assert model.state_dict().keys() == before.keys()


def test_a_replacement_that_fails_leaves_lost_masks_lost_and_all_values(generator):
    model, masks = sparse_mlp(generator)
    before = state_of(model)
    masking.masked_layers(model)["0"].holder.lost = True
    leaf(model[2][0], "weight").grad = torch.eye(6, 7).to_sparse()
    with pytest.raises(NotImplementedError):
        masking.replace_masks(model, {name: ~mask for name, mask in masks.items()})
    assert [layer.holder.lost for layer in masking.masked_layers(model).values()] == [True, False]
    masking.masked_layers(model)["0"].holder.lost = False
    assert_same(before, model.state_dict())
