"""Kernels that hold one matrix: each of its columns sits at one tap, and every other tap is zero.

Kernels are [groups, first, second, taps] here, and their matrices [groups, first, second]. Taps are those of the input
channels, the second side, or the first one in a transposed convolution; they come shaped for broadcasting.
"""

import math
from collections.abc import Sequence

import torch

from orthosparse.registry import lookup


def taps(
    shape: Sequence[int],
    *,
    tap: str,
    transposed: bool,
    generator: torch.Generator,
    goal: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the tap of each input channel of kernels [groups, first, second, *sides], as a flat index.

    Args:
        goal: the mask, shaped as kernels are, whose most used taps "mask" takes; of equals the centre, then the first.

    Raises:
        ValueError: there is no tap of that name, or "mask" without a mask.

    Example:
        >>> goal = torch.tensor([[[[False, True, True]], [[True, False, True]]]])
        >>> taps((1, 2, 1, 3), tap="mask", transposed=False, generator=torch.Generator(), goal=goal).flatten()
        tensor([2])
    """
    groups, first, second, *sides = shape
    channels = (groups, first, 1) if transposed else (groups, 1, second)
    lookup(TAPS, tap, "tap")
    if tap == "random":
        return torch.randint(math.prod(sides), channels, generator=generator, device="cpu")
    if tap == "center":
        return torch.full(channels, _center(sides), device="cpu")
    if goal is None:
        raise ValueError('tap: "mask" expects a mask to align to (align); got none')
    uses = 2 * goal.sum(2 if transposed else 1, keepdim=True)
    uses[..., _center(sides)] += 1
    return uses.argmax(-1)


def embed(matrices: torch.Tensor, positions: torch.Tensor, sides: Sequence[int]) -> torch.Tensor:
    """Return [groups, first, second, *sides] kernels: `matrices` at the taps of `taps`."""
    if math.prod(sides) == 1:
        return matrices.reshape(*matrices.shape, *sides)
    kernel: torch.Tensor = matrices.new_zeros(*matrices.shape, math.prod(sides))
    if (positions == positions[0, 0, 0]).all():  # one tap for all: ten times faster than a scatter
        kernel[..., int(positions[0, 0, 0])] = matrices
    else:
        kernel.scatter_(-1, positions.expand(matrices.shape).unsqueeze(-1), matrices.unsqueeze(-1))
    kernels: torch.Tensor = kernel.unflatten(-1, tuple(sides))
    return kernels


def extract(kernels: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Return the matrices that kernels [groups, first, second, taps] have at the taps of `taps`."""
    return kernels.gather(-1, positions.expand(kernels.shape[:3]).unsqueeze(-1)).squeeze(-1)


def _center(sides: Sequence[int]) -> int:
    flat = 0
    for side in sides:
        flat = flat * side + (side - 1) // 2
    return flat


TAPS = {
    "center": "at the centre of the kernel",
    "random": "at a tap of its own for each input channel",
    "mask": "at the tap that each input channel uses most in the mask",
}
