"""The state of an optimizer for single weights: reset it, move it with the weights, or hand it over."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from orthosparse.checks import check_optimizer
from orthosparse.distributed import fill_off_
from orthosparse.masking.transactions import Saved
from orthosparse.modules.compact_module import Compact, follow


def reset_entries(parameter: Tensor, kept: Tensor, optimizer: torch.optim.Optimizer | None, saved: Saved) -> None:
    """Reset the weights where `kept` is false: zero, no gradient, and the initial state in the optimizer.

    Only state that the optimizer holds for each weight is reset; step counters, and state by row or column, stay.
    """
    for value, start in _by_weight(parameter, optimizer):
        saved.save_off(value, kept, start)
        fill_off_(value, kept, start)


def move_units(module: Compact, indices: Tensor, optimizer: torch.optim.Optimizer | None, saved: Saved) -> None:
    """Move a module's units to other indices, in place, with their values, gradients and optimizer state.

    New units are zero, without a gradient, and in the initial state of the optimizer.
    """
    values = [*_by_weight(module.values, optimizer)]
    for tensor in (*module.buffers(), *(value for value, _ in values)):
        saved.save(tensor)
    source = module.move(indices)
    for value, start in values:
        follow(value.data, source, start=start)


def check_hand_over(optimizer: torch.optim.Optimizer | None, parameters: Mapping[str, Tensor]) -> None:
    """Raise unless the optimizer holds these parameters, by layer name, and their state weight by weight.

    Frozen parameters need not be held.

    Raises:
        TypeError: `optimizer` is not an optimizer.
        ValueError: its state mixes weights, like that of LBFGS or Adafactor, or it does not hold the parameters.
    """
    check_optimizer(optimizer)
    if optimizer is None:
        return
    held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    for layer, parameter in parameters.items():
        if parameter.requires_grad and id(parameter) not in held:
            raise ValueError(
                f"optimizer: expected one that holds every weight that is exchanged and not frozen; it does not hold "
                f"{layer!r}: call this on the part of the model that it trains"
            )
        if isinstance(optimizer, torch.optim.LBFGS):  # keeps a list of parameters, and the state under the first one
            raise ValueError("optimizer: expected one that holds its state weight by weight; got LBFGS: make a new one")
        for name, value in optimizer.state.get(parameter, {}).items():
            if not _is_number(value) and getattr(value, "shape", None) != parameter.shape:
                raise ValueError(
                    f"optimizer: expected one that holds its state weight by weight; {type(optimizer).__name__} has "
                    f"{name!r} of another shape"
                )


def _is_number(value: Any) -> bool:
    """Return whether a state is one number, as steps are; a matrix of one is what Adafactor holds of a single row."""
    if isinstance(value, Tensor):
        return value.numel() == 1 and value.dim() < 2
    return not isinstance(value, list)


def reshaped_state(
    optimizer: torch.optim.Optimizer | None, parameter: nn.Parameter, reshape: Callable[..., Tensor]
) -> dict[str, Any] | None:
    """Return the optimizer's state of a parameter, reshaped for another parameter; None if there is none.

    Args:
        reshape: returns a tensor of the state in the other shape; `start` is the initial value of that state.
    """
    state = None if optimizer is None else optimizer.state.get(parameter)
    if optimizer is None or state is None:
        return None
    starts = _starts(optimizer, parameter)
    return {
        name: reshape(value, start=starts.get(name, 0.0))
        if isinstance(value, Tensor) and value.shape == parameter.shape
        else value
        for name, value in state.items()
    }


def hand_over(
    optimizer: torch.optim.Optimizer | None, old: nn.Parameter, new: nn.Parameter, state: dict[str, Any] | None
) -> None:
    """Replace the parameter `old` of the optimizer by `new`, with this state."""
    if optimizer is None:
        return
    for group in optimizer.param_groups:
        group["params"] = [new if parameter is old else parameter for parameter in group["params"]]
    optimizer.state.pop(old, None)
    if state is not None:
        optimizer.state[new] = state


def _by_weight(parameter: Tensor, optimizer: torch.optim.Optimizer | None) -> Iterator[tuple[Tensor, float]]:
    """Yield what there is of every single weight, with its initial value: values, gradients and optimizer state."""
    yield parameter, 0.0
    if parameter.grad is not None:
        yield parameter.grad, 0.0
    yield from _held(optimizer, parameter)


def _held(optimizer: torch.optim.Optimizer | None, parameter: Tensor) -> Iterator[tuple[Tensor, float]]:
    """Yield each tensor that the optimizer holds weight by weight for a parameter, with its initial value."""
    if optimizer is not None:
        starts = _starts(optimizer, parameter)
        for name, value in optimizer.state.get(parameter, {}).items():
            if isinstance(value, Tensor) and value.shape == parameter.shape:
                yield value, starts.get(name, 0.0)


def _starts(optimizer: torch.optim.Optimizer, parameter: Tensor) -> dict[str, float]:
    """Return the initial values that are not zero, by name in the state: torch's optimizers have these two."""
    groups: list[dict[str, Any]] = optimizer.param_groups
    group = next((group for group in groups if any(held is parameter for held in group["params"])), {})
    starts = {}
    if "step_sizes" in group:  # Rprop, whose step size can only be multiplied
        starts["step_size"] = float(group["lr"])
    if "initial_accumulator_value" in group:  # Adagrad
        starts["sum"] = float(group["initial_accumulator_value"])
    return starts
