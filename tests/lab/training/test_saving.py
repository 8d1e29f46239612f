from types import SimpleNamespace

import pytest
import torch

from orthosparse.lab.training import fit, saving
from orthosparse.lab.training.checkpoint import flatten, load
from orthosparse.lab.training.saving import Saving, check_same, restore, tree_of
from orthosparse.lab.training.step import Stepper


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
    assert _saved(tmp_path)[-1] == 42  # as often as writing one leaves a share of the time for it


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


def _steps(state, number):
    stepper = Stepper(state)
    state.set_rate()
    for _, (images, labels) in zip(range(number), state.loader.epoch(state.epoch, state.step), strict=False):
        stepper(images, labels)


@pytest.mark.parametrize("changes", [{}, {"dynamic": "rigl", "every": 3}, {"optimizer": "adamw", "lr": 0.01}])
def test_a_fresh_run_with_the_state_of_another_goes_on_as_that_one(assembled, same_weights, changes):
    first, second = assembled(**changes), assembled(seed=2, **changes)
    _steps(first, 7)
    restore(second, tree_of(first))
    second.networks.network.load_state_dict(first.networks.network.state_dict())
    second.loader, second.seed = first.loader, first.seed
    fit(first)
    fit(second)
    assert same_weights(first.networks.network, second.networks.network)
    assert first.histories[0][0]["loss"] == second.histories[0][0]["loss"]


def test_a_state_is_plain_values_and_tensors(assembled):
    state = assembled(dynamic="set")
    _steps(state, 2)
    tensors, _ = flatten(tree_of(state))
    assert "model/fc1.weight_mask" in tensors
    assert any("momentum_buffer" in name for name in tensors)


def test_tensors_take_the_layout_of_those_they_replace(assembled):
    state, other = assembled(density=1.0).networks, assembled(density=1.0).networks
    weight = torch.nn.Parameter(torch.zeros(2, 3, 4, 4).to(memory_format=torch.channels_last))
    for each in (state, other):
        each.network.register_parameter("kernel", torch.nn.Parameter(weight.detach().clone()))
        each.optimizer.add_param_group({"params": [each.network.kernel], "weight_decay": 0.0})
        each.network.kernel.grad = torch.ones_like(each.network.kernel)
    state.optimizer.step()
    tree = state.state_dict()
    for entry in tree["optimizer"]["state"].values():
        entry["momentum_buffer"] = entry["momentum_buffer"].contiguous()
    other.load_state_dict(tree)
    kernel = other.network.kernel
    assert kernel.is_contiguous(memory_format=torch.channels_last)
    assert other.optimizer.state[kernel]["momentum_buffer"].stride() == kernel.stride()


def test_the_tensor_of_the_rate_stays_in_its_place(assembled):
    state = assembled()
    rate = state.networks.optimizer.param_groups[0]["lr"]
    tree = tree_of(state)
    rate.fill_(7.0)
    restore(state, tree)
    assert state.networks.optimizer.param_groups[0]["lr"] is rate
    assert float(rate) == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("name", "forged"),
    [("optimizer", {}), ("optimizer", {"state": 7}), ("histories", 7), ("errors", [1]), ("values", {}), ("alive", [1])],
)
def test_the_state_of_no_run_is_refused_by_name(assembled, name, forged):
    state = assembled()
    with pytest.raises(ValueError, match="checkpoint: expected the state of this run"):
        restore(state, {**tree_of(state), name: forged})


def test_a_checkpoint_that_takes_long_is_written_less_often(assembled, tmp_path, monkeypatch):
    clock, saved = SimpleNamespace(now=0.0), []

    def save(folder, steps, tree):
        saved.append(steps)
        clock.now += 3.0

    monkeypatch.setattr(saving, "monotonic", lambda: clock.now)
    monkeypatch.setattr(saving, "save", save)
    state = assembled(epochs=100)
    writer = Saving(tmp_path, {}, seconds=10.0)
    while clock.now < 400:
        clock.now += 1.0
        state.epoch, state.step = divmod(state.steps_done + 1, len(state.loader))
        writer.on_step(state)
    # The first when it is 10 s old; then 50 times the 3 s that it took lie between two.
    assert saved == [10, 160, 310]
