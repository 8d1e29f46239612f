import pytest
import torch

from orthosparse.lab.training import fit
from orthosparse.lab.training.snapshot import put_back, take
from orthosparse.lab.training.stepper import Stepper
from orthosparse.lab.training.trees import copied, flatten


def _steps(state, number):
    stepper = Stepper(state)
    state.set_rate()
    for _, (images, labels) in zip(range(number), state.loader.epoch(state.epoch, state.step), strict=False):
        stepper(images, labels)


@pytest.mark.parametrize("changes", [{}, {"dynamic": "rigl", "every": 3}, {"optimizer": "adamw", "lr": 0.01}])
def test_a_fresh_run_with_the_state_of_another_goes_on_as_that_one(assembled, same_weights, changes):
    first, second = assembled(**changes), assembled(seed=2, **changes)
    _steps(first, 7)
    put_back(second, copied(take(first)))
    second.loader, second.seed = first.loader, first.seed
    fit(first)
    fit(second)
    assert same_weights(first.network, second.network)
    assert first.history[0]["loss"] == second.history[0]["loss"]


def test_a_state_is_plain_values_and_tensors(assembled):
    state = assembled(dynamic="set")
    _steps(state, 2)
    tensors, _ = flatten(take(state))
    assert "model/fc1.weight_mask" in tensors
    assert any("momentum_buffer" in name for name in tensors)


def test_tensors_take_the_layout_of_those_they_replace(assembled):
    state, other = assembled(density=1.0), assembled(density=1.0)
    weight = torch.nn.Parameter(torch.zeros(2, 3, 4, 4).to(memory_format=torch.channels_last))
    for each in (state, other):
        each.network.register_parameter("kernel", torch.nn.Parameter(weight.detach().clone()))
        each.optimizer.add_param_group({"params": [each.network.kernel], "weight_decay": 0.0})
        each.network.kernel.grad = torch.ones_like(each.network.kernel)
    state.optimizer.step()
    tree = take(state)
    tensors, _ = flatten(tree)
    whole = {name: tensor.contiguous() for name, tensor in tensors.items()}
    tree["model"]["kernel"] = whole["model/kernel"]
    put_back(other, tree)
    kernel = other.network.kernel
    assert kernel.is_contiguous(memory_format=torch.channels_last)
    assert other.optimizer.state[kernel]["momentum_buffer"].stride() == kernel.stride()


def test_the_tensor_of_the_rate_stays_in_its_place(assembled):
    state = assembled()
    rate = state.optimizer.param_groups[0]["lr"]
    tree = copied(take(state))
    rate.fill_(7.0)
    put_back(state, tree)
    assert state.optimizer.param_groups[0]["lr"] is rate
    assert float(rate) == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("name", "forged"),
    [("model", [1]), ("model", 7), ("optimizer", {}), ("optimizer", {"state": 7}), ("tally", {}), ("tally", [1])],
)
def test_the_state_of_no_run_is_refused_by_name(assembled, name, forged):
    state = assembled()
    with pytest.raises(ValueError, match="checkpoint: expected the state of this run"):
        put_back(state, copied({**take(state), name: forged}))
