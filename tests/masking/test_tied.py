"""Tied weights, and modules under two names."""

import copy

import pytest
import torch
from torch import nn

from masking.models import Tied, filled, x_of
from orthosparse import masking
from orthosparse.layers import find_layers, leaf


def test_tied_tensors_share_one_mask_and_one_parameter(generator):
    model = filled(Tied(), generator)
    mask = torch.rand(4, 4, generator=generator) < 0.5
    masking.attach(model, {"one": mask})
    assert leaf(model.one, "weight") is leaf(model.two, "weight")
    assert [*masking.masks_of(model)] == ["one"]
    assert len([*model.parameters()]) == 1
    x = x_of(generator, 3, 4)
    dense = torch.where(mask, leaf(model.one, "weight").detach(), 0).requires_grad_()
    (torch.tanh(x @ dense.T) @ dense.T).sum().backward()
    model(x).sum().backward()
    assert torch.allclose(leaf(model.one, "weight").grad, torch.where(mask, dense.grad, 0))
    masking.replace_masks(model, {"one": ~mask})
    assert model.two.weight[mask].count_nonzero() == 0
    assert torch.equal(model.two.weight_mask, ~mask)


@pytest.mark.parametrize("change", [copy.deepcopy, lambda m: m.double(), lambda m: m.to_empty(device="cpu")])
def test_tied_tensors_stay_tied(change, generator):
    model = filled(Tied(), generator)
    masking.attach(model, {"one": torch.rand(4, 4, generator=generator) < 0.5})
    changed = change(model)
    assert changed.one.weight_mask is changed.two.weight_mask
    assert leaf(changed.one, "weight") is leaf(changed.two, "weight")


def test_tied_tensors_are_found_from_either_name_and_through_layers(generator):
    mask = torch.rand(4, 4, generator=generator) < 0.5
    model = filled(Tied(), generator)
    with pytest.raises(ValueError, match="one mask for the tied 'one' and 'two'"):
        masking.attach(model, {"one": mask, "two": mask})
    masking.attach(model, {"two": mask})
    assert torch.equal(masking.masks_of(model)["one"], mask)
    masking.bake(model)
    assert model.one.weight is model.two.weight
    masking.attach(model, {"one": mask}, layers=find_layers(model))
    assert torch.equal(model.two.weight_mask, mask)


def test_tied_tensors_load_from_their_state_dict(generator):
    model, other = filled(Tied(), generator), filled(Tied(), generator)
    masking.attach(model, {"one": torch.rand(4, 4, generator=generator) < 0.5})
    masking.load_sparse(other, model.state_dict())
    x = x_of(generator, 3, 4)
    torch.testing.assert_close(other(x), model(x))
    assert other.one.weight_mask is other.two.weight_mask


def shared(generator):
    """One module under two names."""
    model = nn.Sequential(filled(nn.Linear(4, 4), generator), nn.Tanh())
    return model.append(model[0])


@pytest.mark.parametrize("name", ["0", "2"])
def test_a_module_under_two_names_gets_one_mask_by_either_and_loads_from_its_state_dict(name, generator):
    model, other = shared(generator), shared(generator)
    mask = torch.rand(4, 4, generator=generator) < 0.5
    masking.attach(model, {name: mask})
    assert [*masking.masks_of(model)] == ["0"]
    state = model.state_dict()
    assert sorted(state) == [f"{i}.{key}" for i in (0, 2) for key in ("bias", "weight", "weight_mask")]
    assert masking.load_sparse(other, state) == ([], [])
    assert other[0] is other[2]
    assert torch.equal(masking.masks_of(other)["0"], mask)
    x = x_of(generator, 3, 4)
    torch.testing.assert_close(other(x), model(x))
    masking.bake(other)
    torch.testing.assert_close(other(x), model(x))
    with pytest.raises(ValueError, match="one mask for the tied '0' and '2'"):
        masking.attach(other, {"0": mask, "2": mask})


def test_tying_tied_tensors_again_by_their_names_changes_nothing(generator):
    """As Hugging Face's ``tie_weights`` does."""
    model = filled(Tied(), generator)
    masking.attach(model, {"one": torch.rand(4, 4, generator=generator) < 0.5})
    parameter, before = leaf(model.one, "weight"), model.one.weight.detach().clone()
    model.two.weight = model.get_parameter("one.weight")
    assert leaf(model.one, "weight") is leaf(model.two, "weight") is parameter
    assert len([*model.parameters()]) == 1
    assert torch.equal(model.two.weight, before)
