"""The state dict: what is saved, what loads, with masks and without."""

import io

import pytest
import safetensors.torch
import torch
from torch import nn

from contracts.states import assert_same
from masking.models import coins, filled, mlp, sparse_mlp, x_of
from orthosparse import masking
from orthosparse.layers import leaf


def through_torch(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def through_safetensors(state):
    return safetensors.torch.load(safetensors.torch.save(dict(state)))


@pytest.mark.parametrize("through", [through_torch, through_safetensors])
def test_a_sparse_state_dict_brings_weights_and_masks_onto_other_masks_and_onto_a_dense_model(through, generator):
    model, masks = sparse_mlp(generator)
    with torch.no_grad():
        leaf(model[0], "weight").zero_()  # active weights whose value is zero: the mask is not to be guessed
    state = through(model.state_dict())
    assert {key for key in state if "parametrizations" in key} == set()
    x = x_of(generator, 4, 5)
    other, _ = sparse_mlp(generator)
    assert other.load_state_dict(state, strict=True) == ([], [])
    dense = mlp(generator)
    assert masking.load_sparse(dense, state) == ([], [])
    for loaded in (other, dense):
        torch.testing.assert_close(loaded(x), model(x))
        assert_same(masks, masking.masks_of(loaded))


def test_a_dense_checkpoint_loads_strictly_and_the_mask_stays(generator):
    model, masks = sparse_mlp(generator)
    dense = mlp(generator).state_dict()
    kept = {name: value.clone() for name, value in dense.items()}
    assert model.load_state_dict(dense, strict=True) == ([], [])
    assert torch.equal(model[0].weight, torch.where(masks["0"], dense["0.weight"], 0))
    assert torch.equal(leaf(model[0], "weight"), model[0].weight)
    assert torch.equal(model[3].weight, dense["3.weight"])
    assert torch.equal(masking.masks_of(model)["0"], masks["0"])
    assert_same(dense, kept)


def test_assign_takes_the_values_and_leaves_the_callers_tensors_alone(generator):
    model, masks = sparse_mlp(generator)
    dense = {name: value.double() for name, value in mlp(generator).state_dict().items()}
    model[0].parametrizations.weight.original.requires_grad_(False)
    model.load_state_dict(dense, strict=True, assign=True)
    assert leaf(model[0], "weight").dtype is torch.float64
    assert not leaf(model[0], "weight").requires_grad
    assert torch.equal(model[0].weight, torch.where(masks["0"], dense["0.weight"], 0))
    assert dense["0.weight"].count_nonzero() == 35
    assert model[0].weight_mask.dtype is torch.bool


def test_missing_unexpected_and_misfit_keys_go_by_the_names_of_the_state_dict(generator):
    model, masks = sparse_mlp(generator)
    state = dict(model.state_dict())
    before = model[2][0].weight.detach().clone()
    del state["2.0.weight"]
    state["2.0.weights"] = torch.ones(1)
    with pytest.raises(RuntimeError, match=r'Missing key.*"2\.0\.weight"\. \n.*Unexpected key.*"2\.0\.weights"\. $'):
        model.load_state_dict(state)
    assert model.load_state_dict(state, strict=False) == (["2.0.weight"], ["2.0.weights"])
    del state["2.0.weight_mask"]
    assert model.load_state_dict(state, strict=False).missing_keys == ["2.0.weight", "2.0.weight_mask"]
    assert torch.equal(model[2][0].weight, before)
    state = {**model.state_dict(), "0.weight": torch.ones(5, 7)}
    with pytest.raises(RuntimeError, match=r"size mismatch for 0\.weight: .* torch\.Size\(\[5, 7\]\)"):
        model.load_state_dict(state)
    state = {**model.state_dict(), "0.weight_mask": masks["0"].float()}
    with pytest.raises(RuntimeError, match=r"type mismatch for 0\.weight_mask: .* got torch\.float32"):
        model.load_state_dict(state)
    assert torch.equal(masking.masks_of(model)["0"], masks["0"])
    with pytest.raises(RuntimeError, match=r'Unexpected key.*"0\.weight_mask"'):
        mlp(generator).load_state_dict(model.state_dict())


def test_a_mask_alone_may_be_loaded(generator):
    model, _ = sparse_mlp(generator)
    before = model[0].weight.detach().clone()
    new = torch.rand(7, 5, generator=generator) < 0.5
    model.load_state_dict({"0.weight_mask": new}, strict=False)
    assert torch.equal(model[0].weight, before * new)
    assert torch.equal(masking.masks_of(model)["0"], new)


def test_the_state_dict_shares_memory_with_the_model_and_keeps_variables_when_asked(generator):
    model, _ = sparse_mlp(generator)
    model.state_dict()["0.weight"].zero_()
    assert model[0].weight.count_nonzero() == 0
    assert model.state_dict(keep_vars=True)["0.weight"] is leaf(model[0], "weight")
    assert "encoder.0.weight_mask" in model.state_dict(prefix="encoder.")


def test_saving_between_forward_and_backward_does_no_harm(generator):
    model, _ = sparse_mlp(generator)
    loss = model(x_of(generator, 4, 5)).sum() + leaf(model[0], "weight").square().sum()
    model.state_dict()
    loss.backward()


def test_load_sparse_drops_the_prefixes_of_wrappers(generator):
    model, masks = sparse_mlp(generator)
    state = {f"module._orig_mod.{name}": value for name, value in model.state_dict().items()}
    dense = mlp(generator)
    masking.load_sparse(torch.compile(dense), state)
    assert torch.equal(dense[0].weight, model[0].weight)
    assert torch.equal(masking.masks_of(dense)["2.0"], masks["2.0"])


def test_load_sparse_puts_on_only_the_masks_that_are_missing(generator):
    model, masks = sparse_mlp(generator)
    half = mlp(generator)
    masking.attach(half, {"0": ~masks["0"]})
    masking.load_sparse(half, model.state_dict())
    assert_same(masks, masking.masks_of(half))


def test_load_sparse_of_what_does_not_fit_puts_no_mask_on(generator):
    model, masks = sparse_mlp(generator)
    dense, state = mlp(generator), model.state_dict()
    with pytest.raises(RuntimeError, match=r'Missing key.*"3\.bias"'):
        masking.load_sparse(dense, {name: value for name, value in state.items() if name != "3.bias"})
    with pytest.raises(TypeError, match="bool tensor for '0'"):
        masking.load_sparse(dense, {**state, "0.weight_mask": masks["0"].float()})
    assert not masking.is_sparsified(dense)


def test_load_sparse_fills_a_model_on_the_meta_device(generator):
    model, masks = sparse_mlp(generator)
    with torch.device("meta"):
        empty = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Sequential(nn.Linear(7, 6)), nn.Linear(6, 3))
    masking.load_sparse(empty, model.state_dict(), assign=True)
    x = x_of(generator, 4, 5)
    torch.testing.assert_close(empty(x), model(x))
    assert torch.equal(masking.masks_of(empty)["0"], masks["0"])


def test_buffers_of_versioned_modules_load_as_they_would_without_masks(generator):
    model = filled(nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)), generator)
    masking.attach(model, coins(model, ["0"], generator))
    other = filled(nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)), generator)
    model[1].num_batches_tracked += 3
    assert masking.load_sparse(other, model.state_dict()) == ([], [])
    assert other[1].num_batches_tracked == 3
