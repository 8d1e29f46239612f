import pytest

from orthosparse.lab.training import fit
from orthosparse.lab.training.checkpoint import load
from orthosparse.lab.training.saving import Saving, check_same


def _saved(tmp_path):
    return sorted(int(path.stem.split("-")[1]) for path in tmp_path.glob("checkpoint-*.json"))


def test_the_last_epoch_always_ends_with_a_checkpoint(assembled, tmp_path):
    state = assembled()
    fit(state, [Saving(tmp_path, {})])
    assert _saved(tmp_path) == [state.steps_done]


def test_checkpoints_come_every_so_many_steps(assembled, tmp_path):
    fit(assembled(), [Saving(tmp_path, {}, every=10)])
    assert _saved(tmp_path) == [40, 42]


def test_old_checkpoints_are_replaced_by_the_clock(assembled, tmp_path):
    fit(assembled(), [Saving(tmp_path, {}, seconds=0.0)])
    assert _saved(tmp_path) == [41, 42]  # every step, here


def test_a_checkpoint_holds_the_settings(assembled, tmp_path):
    fit(assembled(), [Saving(tmp_path, {"seed": 3, "config": {"exclude": []}})])
    assert load(tmp_path)["settings"] == {"seed": 3, "config": {"exclude": []}}


def test_settings_that_are_only_on_one_side_are_differences_too():
    with pytest.raises(ValueError, match=r"lr \(0.1 there, None here\), gamma \(None there, 2 here\)"):
        check_same({"lr": 0.1}, {"gamma": 2})


def test_many_differences_are_a_few_and_a_number():
    there = {f"s{number}": number for number in range(20)}
    with pytest.raises(ValueError) as caught:
        check_same(there, dict.fromkeys(there, -1))
    message = str(caught.value)
    assert message.endswith("s0 (0 there, -1 here), s1 (1 there, -1 here), s2 (2 there, -1 here) and 17 more")


def test_a_group_of_settings_that_is_only_on_one_side_is_one_difference():
    member = {"config": {"lr": 0.1, "density": 0.2}, "seed": 1}
    with pytest.raises(ValueError, match=r"differ in 1 \(only here\)$"):
        check_same({"0": member}, {"0": member, "1": member})
    with pytest.raises(ValueError, match=r"differ in 1 \(only there\)$"):
        check_same({"0": member, "1": member}, {"0": member})


def test_a_long_value_is_shown_by_its_beginning():
    with pytest.raises(ValueError) as caught:
        check_same({"exclude": ["head"]}, {"exclude": [f"layer{number}" for number in range(1000)]})
    assert "exclude (['head'] there, ['layer0', 'layer1'" in str(caught.value)
    assert len(str(caught.value)) < 200


def test_lists_and_tuples_are_the_same_setting():
    check_same({"exclude": ["head"]}, {"exclude": ("head",)})
