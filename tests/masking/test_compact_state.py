"""State dicts of masked and compact models, loaded into each other."""

import copy

import pytest
import torch
from torch import nn

from compacting.models import Net, batch_for, masked_net
from contracts.states import assert_same, state_of
from orthosparse import compact, load_sparse, masks_of, replace_masks


@pytest.fixture(params=[None, 16], ids=["entries", "blocks"])
def pair(request, generator):
    """A masked model, and a compact one of other weights and places, but as many units."""
    masked = masked_net(generator, block=request.param)
    other = copy.deepcopy(masked)
    masks = {name: mask.flip(0, 1).contiguous() for name, mask in masks_of(other).items()}
    replace_masks(other, masks)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.normal_(generator=generator)
    compact(other)
    return masked, other


def same(first, second, generator):
    x, _ = batch_for(first, generator)
    torch.testing.assert_close(first.eval()(x), second.eval()(x), rtol=1e-10, atol=1e-10)
    masks, others = masks_of(first), masks_of(second)
    return all(torch.equal(mask, others[name]) for name, mask in masks.items())


def test_a_masked_checkpoint_goes_into_a_compact_model(pair, generator):
    masked, other = pair
    load_sparse(other, masked.state_dict())
    assert same(masked, other, generator)


def test_a_compact_checkpoint_goes_into_a_masked_model(pair, generator):
    masked, other = pair
    load_sparse(masked, other.state_dict())
    assert same(masked, other, generator)


def test_a_compact_checkpoint_goes_into_a_dense_model_which_is_then_masked(pair, generator):
    _, other = pair
    plain = Net().double()
    load_sparse(plain, other.state_dict())
    assert same(plain, other, generator)


def test_a_dense_checkpoint_is_read_at_the_indices_of_a_compact_model(pair):
    _, other = pair
    plain = Net().double()
    before = masks_of(other)["fc"]
    load_sparse(other, plain.state_dict())
    assert torch.equal(other.fc.weight, torch.where(before, plain.fc.weight, 0))


def test_another_number_of_units_is_refused_and_nothing_changed(pair):
    masked, other = pair
    state = masked.state_dict()
    state["fc.weight_mask"] = torch.ones_like(state["fc.weight_mask"])
    before = copy.deepcopy(other.state_dict())
    with pytest.raises(ValueError, match=r"state: fc\.weight_mask: expected"):
        load_sparse(other, state)
    assert_same(before, other.state_dict())


def test_indices_of_another_shape_are_refused(generator):
    model, other = (masked_net(generator, model=nn.Sequential(nn.Linear(8, size))) for size in (4, 6))
    compact(other)
    with pytest.raises(ValueError, match=r"state: 0\.columns do not fit"):
        load_sparse(model, other.state_dict())


WRONG = {
    "nothing": None,
    "a list": [1.0],
    "no entries": torch.empty(0),
    "one number": torch.tensor(3),
    "bools": torch.ones(2, 2, dtype=torch.bool),
    "integers": torch.ones(3, dtype=torch.int64),
    "complex": torch.ones(2, dtype=torch.complex64),
    "a matrix": torch.ones(1, 7, dtype=torch.float64),
    "blocks of five": torch.ones(3, 5, 5, dtype=torch.float64),
    "too many": torch.ones(1, 9000, dtype=torch.float64),
    "without memory": torch.empty(1, 7, dtype=torch.float64, device="meta"),
    "sparse": torch.eye(3, dtype=torch.float64).to_sparse(),
}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("key", ["values", "row_starts", "columns"])
@pytest.mark.parametrize("into", ["dense", "compact"])
def test_a_forged_compact_layer_is_refused_by_name(pair, key, wrong, into):
    _, other = pair
    state = {**other.state_dict(), f"fc.{key}": WRONG[wrong]}
    model = Net().double() if into == "dense" else other
    before = state_of(model)
    with pytest.raises((ValueError, TypeError, RuntimeError), match=r"state: .*(\n.*)?fc\."):
        load_sparse(model, state)
    assert_same(before, model.state_dict())


@pytest.mark.parametrize("wrong", [each for each in WRONG if each != "too many"])
@pytest.mark.parametrize("key", ["weight", "weight_mask"])
def test_a_forged_masked_layer_is_refused_by_name_in_a_compact_model(pair, key, wrong):
    masked, other = pair
    with pytest.raises((ValueError, TypeError), match=r"state: .*fc\."):
        load_sparse(other, {**masked.state_dict(), f"fc.{key}": WRONG[wrong]})
