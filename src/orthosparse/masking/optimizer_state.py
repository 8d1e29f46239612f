"""The state that an optimizer holds of single weights, reset to that of new ones."""

from typing import Any

import torch
from torch import Tensor

from orthosparse.sharding import fill_off_, zero_off_


def reset_entries(parameter: Tensor, kept: Tensor, optimizer: torch.optim.Optimizer | None) -> None:
    """Make new weights of those where `kept` is false: zero, no gradient, and the initial state in the optimizer.

    Only what the optimizer holds weight by weight is meant; the number of steps taken, rows and columns stay.
    """
    for value in (parameter, parameter.grad):
        if value is not None:
            zero_off_(value, kept)
    if optimizer is None:
        return
    starts = _starts(optimizer, parameter)
    for name, value in optimizer.state.get(parameter, {}).items():
        if isinstance(value, Tensor) and value.shape == parameter.shape:
            fill_off_(value, kept, starts.get(name, 0.0))


def _starts(optimizer: torch.optim.Optimizer, parameter: Tensor) -> dict[str, float]:
    """What does not start at zero, by its name in the state: of all that torch's optimizers hold, these two."""
    groups: list[dict[str, Any]] = optimizer.param_groups
    group = next((group for group in groups if any(held is parameter for held in group["params"])), {})
    starts = {}
    if "step_sizes" in group:  # Rprop, whose step size can only be multiplied
        starts["step_size"] = float(group["lr"])
    if "initial_accumulator_value" in group:  # Adagrad
        starts["sum"] = float(group["initial_accumulator_value"])
    return starts
