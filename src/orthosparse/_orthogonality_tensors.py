"""What a weight must be before it is measured or filled, and the block of each group in it."""

import math
from collections.abc import Collection
from numbers import Real

import torch

FILLABLE = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
MATRIX, KERNEL = (2,), (3, 4, 5)


def check_readable(weight: torch.Tensor) -> None:
    """Raise unless `weight` is a dense, real, allocated tensor of two or more sides with something in it.

    Raises:
        TypeError: not a tensor, or complex, sparse, nested or quantized.
        ValueError: fewer than two sides, a side of 0, or no storage.
    """
    if not isinstance(weight, torch.Tensor) or not _is_dense(weight) or weight.is_complex():
        raise TypeError(f"weight: expected a dense real tensor; got {described(weight)}")
    if weight.is_meta or torch.nn.parameter.is_lazy(weight):
        raise ValueError(f"weight: expected a tensor with storage; got {described(weight)}")
    if weight.dim() < 2 or weight.numel() == 0:
        raise ValueError(f"weight: expected two or more sides, none of them 0; got {described(weight)}")


def check_fillable(weight: torch.Tensor, sides: Collection[int]) -> None:
    """Raise unless `weight` is also floating point, of `sides` sides, and no two of its entries share memory."""
    check_readable(weight)
    if weight.dtype not in FILLABLE:
        expected = ", ".join(str(dtype).removeprefix("torch.") for dtype in FILLABLE)
        raise TypeError(f"weight: expected one of the dtypes {expected}; got {described(weight)}")
    if weight.dim() not in sides:
        raise ValueError(f"weight: expected {' or '.join(map(str, sides))} sides; got {described(weight)}")
    if any(stride == 0 and size > 1 for stride, size in zip(weight.stride(), weight.shape, strict=True)):
        raise ValueError(f"weight: expected entries of their own, not an expanded tensor; got {described(weight)}")


def check_gain(gain: object, limit: float = math.inf) -> float:
    """Return `gain` as a float; raise unless it is a finite number of size `limit` at most."""
    if isinstance(gain, bool) or not isinstance(gain, Real):
        raise TypeError(f"gain: expected a finite number; got {gain!r} ({type(gain).__name__})")
    if not math.isfinite(gain) or abs(float(gain)) > limit:
        raise ValueError(f"gain: expected a finite number{f' of at most {limit:g}' * (limit < math.inf)}; got {gain!r}")
    return float(gain)


def blocks_of(weight: torch.Tensor, groups: int) -> torch.Tensor:
    """View `weight` as [groups, first / groups, second, *kernel].

    The first side is the one that groups cut, stored transposed or not.

    Raises:
        ValueError: `groups` does not divide the first side.
    """
    if isinstance(groups, bool) or not isinstance(groups, int):
        raise TypeError(f"groups: expected an integer; got {groups!r} ({type(groups).__name__})")
    if groups < 1 or weight.shape[0] % groups:
        raise ValueError(f"groups: expected a divisor of {weight.shape[0]}, the weight's first side; got {groups}")
    return weight.detach().view(groups, weight.shape[0] // groups, *weight.shape[1:])


def described(weight: object) -> str:
    """Return what a message says about an argument that should have been another tensor."""
    if not isinstance(weight, torch.Tensor):
        return f"{weight!r} ({type(weight).__name__})"
    if torch.nn.parameter.is_lazy(weight):
        return "a parameter that is not initialized yet"
    shape = "nested" if weight.is_nested else f"shape {tuple(weight.shape)}"
    return f"{shape}, {weight.dtype}, {weight.layout}, {weight.device}"


def _is_dense(weight: torch.Tensor) -> bool:
    if torch.nn.parameter.is_lazy(weight):
        return True
    return weight.layout == torch.strided and not (weight.is_nested or weight.is_quantized)
