"""Masks by layer name, and the ones that are refused."""

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

from contracts.states import assert_same, state_of
from masking.models import coins, filled, mlp, sparse_mlp
from orthosparse import masking
from orthosparse.layers import find_layers


def test_masks_are_read_in_module_order_by_layer_name(generator):
    model = mlp(generator)
    masks = coins(model, ["3", "2.0", "0"], generator)
    assert not masking.is_sparsified(model)
    assert masking.masks_of(model) == {}
    masking.attach(model, masks)
    read = masking.masks_of(model)
    assert [*read] == ["0", "2.0", "3"]
    assert_same(read, masks)
    assert masking.is_sparsified(model)
    read["0"].fill_(True)
    assert torch.equal(masking.masks_of(model)["0"], masks["0"])


def test_the_root_module_and_tensors_of_other_names_are_reached(generator):
    linear = filled(nn.Linear(3, 2), generator)
    masking.attach(linear, {"weight": torch.eye(2, 3, dtype=torch.bool), "bias": torch.tensor([True, False])})
    assert [*masking.masks_of(linear)] == ["weight", "bias"]
    assert linear.bias[1] == 0
    assert sorted(linear.state_dict()) == ["bias", "bias_mask", "weight", "weight_mask"]


def test_layers_say_where_names_lead(generator):
    model = mlp(generator)
    layers = find_layers(model, exclude=["3"])
    masks = coins(model, ["0", "3"], generator)
    with pytest.raises(ValueError, match=r"masks: expected names among 0, 2\.0; got '3'"):
        masking.attach(model, masks, layers=layers)
    masking.attach(model, {"0": masks["0"]}, layers=layers)
    assert [*masking.masks_of(model)] == ["0"]


BAD = {
    "no such name": (lambda m: {**m, "nowhere": m["0"]}, ValueError, "got 'nowhere'"),
    "not bool": (lambda m: {**m, "3": torch.ones(3, 6)}, TypeError, "bool tensor for '3'; got torch.float32"),
    "not a tensor": (lambda m: {**m, "3": [[True]]}, TypeError, "bool tensor for '3'; got list"),
    "shape": (lambda m: {**m, "3": torch.ones(6, 3, dtype=torch.bool)}, ValueError, r"\(3, 6\) for '3'; got \(6, 3\)"),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("function", [masking.attach, masking.replace_masks])
def test_bad_masks_are_refused_and_nothing_changes(case, function, generator):
    change, error, message = BAD[case]
    model = mlp(generator)
    masks = coins(model, ["0", "3"], generator)
    if function is masking.replace_masks:
        masking.attach(model, masks)
    before = state_of(model)
    with pytest.raises(error, match=message):
        function(model, change({name: ~mask for name, mask in masks.items()}))
    after = model.state_dict()
    assert [*after] == [*before]
    assert_same(after, before)


def test_a_tensor_that_cannot_get_a_mask_is_refused_and_nothing_changes(generator):
    model, masks = sparse_mlp(generator)
    parametrize.register_parametrization(model[3], "bias", nn.Tanh())
    third = {"3": torch.ones(3, 6, dtype=torch.bool)}
    with pytest.raises(ValueError, match="'0' has a mask already; replace_masks"):
        masking.attach(model, {**third, "0": masks["0"]})
    model.register_buffer("spare_mask", torch.ones(2))
    model.register_parameter("spare", nn.Parameter(torch.ones(2)))
    with pytest.raises(ValueError, match="an attribute 'spare_mask' of the module's own"):
        masking.attach(model, {**third, "spare": torch.ones(2, dtype=torch.bool)})
    with pytest.raises(ValueError, match=r"names among .*; got '3\.bias'"):  # computed by another parametrization
        masking.attach(model, {**third, "3.bias": torch.ones(3, dtype=torch.bool)})
    parametrize.register_parametrization(model[3], "weight", nn.Identity())
    with pytest.raises(ValueError, match="'3' has another parametrization"):
        masking.attach(model, third, layers=find_layers(model))
    with pytest.raises(ValueError, match="has no shape yet"):
        masking.attach(nn.Sequential(nn.LazyLinear(3)), {"0": torch.ones(3, 3, dtype=torch.bool)})
    assert [*masking.masks_of(model)] == ["0", "2.0"]
