"""Moving, casting, functional calls, and masks in one process."""

import copy

import pytest
import torch
from torch import nn

from contracts.states import assert_same, state_of
from masking.models import coins, filled, sparse_mlp, x_of
from orthosparse import masking
from orthosparse.layers import leaf


@pytest.mark.parametrize(
    "cast", [lambda m: m.half(), lambda m: m.to(torch.bfloat16), lambda m: m.double(), lambda m: m.type(torch.float64)]
)
def test_casting_a_model_leaves_its_masks_bool(cast, generator):
    model, masks = sparse_mlp(generator)
    cast(model)
    assert leaf(model[0], "weight").dtype is not torch.float32
    assert model[0].weight.dtype is leaf(model[0], "weight").dtype
    assert_same(masks, masking.masks_of(model))


def test_memory_without_content_keeps_the_masks(generator):
    model, masks = sparse_mlp(generator)
    model.to_empty(device="cpu")
    assert_same(masks, masking.masks_of(model))


def test_masks_that_were_lost_on_the_meta_device_are_missed_not_guessed(generator):
    model, masks = sparse_mlp(generator)
    state = state_of(model)
    x = x_of(generator, 4, 5)
    expected = model(x)
    model.to("meta")
    assert model(x.to("meta")).is_meta
    model.to_empty(device="cpu")
    with pytest.raises(RuntimeError, match="the mask was lost on the meta device"):
        model(x)
    with pytest.raises(RuntimeError, match=r'Missing key.*"0\.weight_mask", "2\.0\.weight_mask"'):
        model.load_state_dict({name: value for name, value in state.items() if "mask" not in name})
    twin = copy.deepcopy(model)
    model.load_state_dict(state)
    torch.testing.assert_close(model(x), expected)
    twin.load_state_dict({name: value for name, value in state.items() if "mask" not in name}, strict=False)
    masking.replace_masks(twin, masks)
    torch.testing.assert_close(twin(x), expected)


def test_functional_calls_differentiate_through_the_mask(generator):
    model, masks = sparse_mlp(generator)
    x = x_of(generator, 4, 5)
    parameters = {name: value.detach() for name, value in model.named_parameters()}
    gradients = torch.func.grad(lambda p: torch.func.functional_call(model, p, x).sum())(parameters)
    model(x).sum().backward()
    for name, value in model.named_parameters():
        assert torch.allclose(gradients[name], value.grad)
    assert gradients["0._checkpoint_wrapped_module.weight"][~masks["0"]].count_nonzero() == 0


def test_copies_with_masks_of_their_own_run_as_one_ensemble(generator):
    model, _ = sparse_mlp(generator)
    models = [copy.deepcopy(model) for _ in range(3)]
    for member in models:
        masking.replace_masks(member, coins(member, ["0", "2.0"], generator))
        filled(member, generator)
    stacked = torch.func.stack_module_state(models)
    skeleton = copy.deepcopy(model).to("meta")
    x = x_of(generator, 4, 5)
    together = torch.vmap(lambda p, b: torch.func.functional_call(skeleton, (p, b), x))(*stacked)
    for output, member in zip(together, models, strict=True):
        assert torch.allclose(output, member(x), atol=1e-6)


def test_without_a_process_group_there_is_nothing_to_synchronize(generator):
    model, masks = sparse_mlp(generator)
    masking.synchronize(model)
    assert_same(masks, masking.masks_of(model))


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_come_back_from_the_meta_device(kind, generator):
    model = filled(nn.Sequential(kind(4, 3, num_layers=2)), generator)
    masking.attach(model, coins(model, ["0.weight_ih_l0", "0.weight_hh_l1"], generator))
    state = state_of(model)
    x = x_of(generator, 5, 2, 4)
    expected = model(x)[0]
    model.to("meta").to_empty(device="cpu")
    with pytest.raises(RuntimeError, match="the mask was lost on the meta device"):
        model(x)
    model.load_state_dict(state)
    torch.testing.assert_close(model(x)[0], expected)
