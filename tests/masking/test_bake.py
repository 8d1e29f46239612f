"""Baking, and copies that share a class."""

import copy
import io
import pickle

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

from contracts.states import state_of
from masking.models import coins, filled, mlp, sparse_mlp, x_of
from orthosparse import compact, masking
from orthosparse.layers import leaf


def test_bake_gives_back_plain_modules_with_the_same_parameters_in_the_same_order(generator):
    model = mlp(generator)
    keys, parameters, types = [*model.state_dict()], [*model.parameters()], [type(m) for m in model.modules()]
    masks = coins(model, ["0", "2.0"], generator)
    masking.attach(model, masks)
    x = x_of(generator, 4, 5)
    expected = model(x)
    masking.bake(model)
    assert [*model.state_dict()] == keys
    assert [type(m) for m in model.modules()] == types
    assert all(a is b for a, b in zip(model.parameters(), parameters, strict=True))
    torch.testing.assert_close(model(x), expected)
    assert model[0].weight[~masks["0"]].count_nonzero() == 0
    assert not hasattr(model[0], "weight_mask")
    assert not model[0]._state_dict_hooks
    assert not model[0]._load_state_dict_pre_hooks
    torch.save(model, io.BytesIO())


def test_a_baked_model_can_be_masked_again(generator):
    model, masks = sparse_mlp(generator)
    masking.bake(model)
    masking.attach(model, {"0": ~masks["0"]})
    assert model[0].weight.count_nonzero() == 0


def test_a_deep_copy_is_independent(generator):
    model, masks = sparse_mlp(generator)
    twin = copy.deepcopy(model)
    x = x_of(generator, 4, 5)
    torch.testing.assert_close(model(x), twin(x))
    before = model(x)
    masking.replace_masks(twin, {"0": ~masks["0"]})
    twin.load_state_dict({name: torch.zeros_like(value) for name, value in twin.state_dict().items()})
    torch.testing.assert_close(model(x), before)
    assert torch.equal(masking.masks_of(model)["0"], masks["0"])


@pytest.mark.parametrize("baked", ["copy", "original"])
def test_baking_one_of_two_copies_leaves_the_other_masked(baked, generator):
    model = nn.Sequential(filled(nn.LSTM(3, 4), generator))
    masks = coins(model, ["0.weight_ih_l0", "0.weight_hh_l0"], generator)
    masking.attach(model, masks)
    one, other = (copy.deepcopy(model), model) if baked == "copy" else (model, copy.deepcopy(model))
    masking.bake(one)
    assert not masking.is_sparsified(one)
    assert masking.masks_of(other).keys() == masks.keys()
    assert torch.equal(one[0].weight_ih_l0, other[0].weight_ih_l0)
    assert torch.equal(one[0].weight_hh_l0, other[0].weight_hh_l0)
    assert "0.weight_ih_l0_mask" in other.state_dict()


def test_a_second_mask_on_a_copy_leaves_the_original_alone(generator):
    model = filled(nn.LSTM(3, 4), generator)
    masks = coins(model, ["weight_ih_l0", "weight_hh_l0"], generator)
    masking.attach(model, {"weight_ih_l0": masks["weight_ih_l0"]})
    twin = copy.deepcopy(model)
    masking.attach(twin, {"weight_hh_l0": masks["weight_hh_l0"]})
    assert [*masking.masks_of(model)] == ["weight_ih_l0"]
    assert model.weight_hh_l0.count_nonzero() == 64
    assert twin.weight_hh_l0[~masks["weight_hh_l0"]].count_nonzero() == 0


def test_pickling_a_masked_module_says_what_to_do_instead(generator):
    model, _ = sparse_mlp(generator)
    for pickled in (
        lambda: torch.save(model, io.BytesIO()),
        lambda: pickle.dumps(model[0]),
        lambda: copy.copy(model[0]),
    ):
        with pytest.raises(RuntimeError, match=r"save model\.state_dict\(\) and load_sparse it"):
            pickled()
    masking.bake(model)
    assert pickle.dumps(model)


@pytest.mark.parametrize("leave", [True, False])
def test_masks_that_torch_removes_leave_a_module_that_saves_loads_and_can_be_masked_again(leave, generator):
    model, masks = sparse_mlp(generator)
    weight, parameter = model[0].weight.detach().clone(), leaf(model[0], "weight")
    parametrize.remove_parametrizations(model[0], "weight", leave_parametrized=leave)
    assert type(model[0]) is nn.Linear
    assert model[0].weight is parameter
    assert torch.equal(model[0].weight, weight)
    state = state_of(model)
    assert "0.weight_mask" not in state
    assert len([*model.parameters()]) == 6
    assert model.load_state_dict(
        {name: 2 * value if value.is_floating_point() else value for name, value in state.items()}
    )
    assert torch.equal(model[0].weight, 2 * weight)
    masking.attach(model, {"0": masks["0"]})
    assert model.load_state_dict({**state, "0.weight_mask": ~masks["0"]}) == ([], [])
    assert model[0].weight[masks["0"]].count_nonzero() == 0
    masking.bake(model)
    assert str(model) == str(mlp(generator))


def test_compact_layers_that_are_baked_in_inference_mode_can_be_trained():
    model = nn.Sequential(nn.Linear(8, 8))
    masking.attach(model, {"0": torch.eye(8, dtype=torch.bool)})
    compact(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for bake in (False, True):
        model(torch.ones(1, 8)).sum().backward()
        optimizer.step()
        with torch.inference_mode():
            masking.bake(model, optimizer=optimizer) if bake else None
    model(torch.ones(1, 8)).sum().backward()
    optimizer.step()
    assert type(model[0]) is nn.Linear
