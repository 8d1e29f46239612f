"""Members whose masks move against the single runs that they are."""

import dataclasses

import pytest
import torch

from contracts.states import assert_same
from lab.training.stacked.runs import Stop, check_equal
from orthosparse.lab.training import train_many
from orthosparse.lab.training.stacked import launches
from orthosparse.lab.training.stacked.stack import _Moving, _Update

SPARSE = {"density": 0.3, "every": 5}


def mixed(deep, **shape):
    """RigL and SET from several starts, and one whose masks stay."""
    changes = {**SPARSE, **shape}
    return [
        (deep(dynamic="rigl", scheme="eoi", **changes), 1),
        (deep(dynamic="set", scheme="base", **changes), 2),
        (deep(scheme="eoi", **changes), 1),
        (deep(dynamic="rigl", distribution="uniform", scheme="base", until=0.5, **changes), 3),
    ]


def masks_of(state):
    return {name: value for name, value in state.items() if name.endswith("_mask")}


def check_moved(kept, start):
    """The masks of the first member are others than its first ones, of the same counts; all is zero off masks."""
    moved = masks_of(kept.weights()[0])
    assert any(not torch.equal(moved[name], mask) for name, mask in start.items())
    assert all(int(moved[name].sum()) == int(mask.sum()) for name, mask in start.items())
    for slab in kept.stack.slabs:
        assert not slab.weight.value[slab.weight.off].any()
        assert not slab.weight.momentum[slab.weight.off].any()


def test_members_move_their_masks_as_they_would_alone(deep, kept, tmp_path):
    check_equal(mixed(deep), kept, tmp_path, weights=1e-10, losses=1e-10)
    assert len(kept.stack._singles) == 3


def test_masks_have_moved_and_weights_off_them_are_zero(deep, kept):
    train_many([(deep(scheme="eoi", **SPARSE), 1)], device="cpu")
    stayed = masks_of(kept.weights()[0])
    train_many(mixed(deep), device="cpu")
    check_moved(kept, stayed)


def test_the_masks_of_residual_networks_move_too(deep, few_digits, kept, tmp_path):
    shared = {"model": "resnet32", "batch": 40, "epochs": 2, "dense_init": "conv_orthogonal", "schedule": "constant"}
    config = deep(**shared, **{**SPARSE, "every": 2}, dynamic="rigl", until=1.0)
    config = dataclasses.replace(config, model_options={})
    check_equal([(config, 1)], kept, tmp_path, weights=1e-8, losses=1e-8)


@pytest.mark.parametrize("stop", [3, 7, 14])
def test_a_run_that_was_stopped_goes_on_with_the_masks_it_had(deep, kept, tmp_path, stop):
    members = mixed(deep)
    whole = train_many(members, device="cpu")
    expected = kept.weights()
    with pytest.raises(KeyboardInterrupt):
        train_many(members, device="cpu", out=tmp_path, checkpoint_steps=3, callbacks=[Stop(stop)])
    resumed = train_many(members, device="cpu", out=tmp_path, resume=True)
    for mine, theirs in zip(kept.weights(), expected, strict=True):
        assert_same(mine, theirs)
    assert [each["test_loss"] for each in resumed] == [each["test_loss"] for each in whole]


def test_a_member_that_has_stopped_moves_no_more_and_the_others_do(deep, kept):
    members = [(deep(dynamic="rigl", precision="tf32", activation="linear", **SPARSE), 1)]
    harmless = train_many(members, device="cpu")
    expected = kept.weights()[0]
    planted = (deep(dynamic="set", gain=1e7, precision="tf32", activation="linear", **SPARSE), 2)
    first, second = train_many([*members, planted], device="cpu")
    assert second["diverged"]
    assert first["test_loss"] == harmless[0]["test_loss"]
    assert_same(kept.weights()[0], expected)


def test_global_generators_are_left_as_they_were(deep):
    before = torch.random.get_rng_state()
    train_many(mixed(deep)[:1], device="cpu")
    assert torch.equal(torch.random.get_rng_state(), before)


def test_what_is_derived_from_masks_and_weights_follows_them_in_place(deep, kept):
    train_many(mixed(deep, epochs=1, precision="tf32"), device="cpu")
    stack, slab = kept.stack, kept.stack.slabs[1]
    active = launches.active_groups(slab.weight)
    slab.rounded = torch.zeros_like(slab.weight.value)
    place, copy = active.data_ptr(), slab.rounded.data_ptr()
    stack._updates = [_Update(slab, slab.weight, 0.0, True, active)]
    slab.weight.off.logical_not_()
    slab.weight.value.add_(1.0)
    stack.after_step(_Moving(0, {}), slab.weight.value, slab.weight.value, kept.state.records.alive)
    assert torch.equal(active, launches.active_groups(slab.weight))
    assert torch.equal(slab.rounded, slab.weight.value)  # nothing is rounded outside of TF32 products
    assert (active.data_ptr(), slab.rounded.data_ptr()) == (place, copy)


def test_a_loaded_state_brings_the_groups_of_entries_that_its_masks_let_through(deep, kept):
    train_many(mixed(deep, epochs=1, precision="tf32"), device="cpu")
    stack, slab = kept.stack, kept.stack.slabs[1]
    active = torch.zeros_like(launches.active_groups(slab.weight))  # as of the masks of the starts
    stack._updates = [_Update(slab, slab.weight, 0.0, True, active)]
    stack.load_state_dict(stack.state_dict())
    assert active.any()
    assert torch.equal(active, launches.active_groups(slab.weight))


def test_without_masks_that_move_nothing_is_prepared(deep, kept):
    train_many([(deep(**SPARSE), 1)], device="cpu")
    assert kept.stack._singles == {}
    assert kept.stack.before_step(5, whole=True) is None


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_on_a_gpu_masks_move_between_the_replays_of_a_graph(deep, kept, precision):
    stayed = [(deep(density=0.3, width=32, precision=precision), 1)]
    train_many(stayed, device="cuda")
    start = masks_of(kept.weights()[0])
    train_many(mixed(deep, width=32, precision=precision), device="cuda", graph=True)
    check_moved(kept, start)


@pytest.mark.gpu
def test_on_a_gpu_a_run_that_was_stopped_goes_on_with_the_masks_it_had(deep, kept, tmp_path):
    members = mixed(deep, width=32, precision="tf32")
    train_many(members, device="cuda", fused=True)
    expected = kept.weights()
    with pytest.raises(KeyboardInterrupt):
        train_many(members, device="cuda", fused=True, out=tmp_path, checkpoint_steps=7, callbacks=[Stop(7)])
    train_many(members, device="cuda", fused=True, out=tmp_path, resume=True)
    for mine, theirs in zip(kept.weights(), expected, strict=True):
        for name, value in theirs.items():
            torch.testing.assert_close(mine[name].float(), value.float(), rtol=0, atol=1e-5)
