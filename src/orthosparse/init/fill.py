"""What filling a weight begins and ends with: checks before anything is drawn, one cast and copy at the end."""

import torch

from orthosparse.checks import check_fillable, check_gain


def check_weight(weight: torch.Tensor, gain: float, sides: tuple[int, ...]) -> float:
    """Return the gain, once both are known to be good."""
    check_fillable(weight, sides)
    return check_gain(gain, torch.finfo(weight.dtype).max)


@torch.no_grad()
def fill(weight: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Copy `values` into `weight` and return it."""
    return weight.copy_(values.reshape(weight.shape))
