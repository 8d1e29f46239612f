"""Products that compute in the type that they are given, which has been chosen before."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor


def without_autocast(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Let `function`, whose first argument is a tensor, compute in the type of its arguments, also under autocast."""

    @wraps(function)
    def run(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        kind = x.device.type
        if not torch.is_autocast_enabled(kind):
            return function(x, *args, **kwargs)
        with torch.autocast(kind, enabled=False):
            return function(x, *args, **kwargs)

    return run


def cast(dtype: torch.dtype, *tensors: Tensor | None) -> list[Any]:
    """Return the tensors in a type; float64 stays, as under autocast."""
    return [each if each is None or each.dtype == torch.float64 else each.to(dtype) for each in tensors]
