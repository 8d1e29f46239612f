"""Kernels that hold one matrix: each input channel's column sits at one tap, and every other tap is zero."""

import math
from collections.abc import Sequence

import torch

from orthosparse.registry import lookup


def taps(groups: int, channels: int, sides: Sequence[int], *, tap: str, generator: torch.Generator) -> torch.Tensor:
    """Return the tap of each input channel as a flat index into a kernel of `sides`, [groups, channels].

    Raises:
        ValueError: there is no tap of that name.
    """
    return lookup(_TAPS, tap, "tap")(groups, channels, sides, generator)


def embed(matrices: torch.Tensor, positions: torch.Tensor, sides: Sequence[int], *, transposed: bool) -> torch.Tensor:
    """Return [groups, first, second, *sides] kernels: `matrices` [groups, first, second] at the taps of `taps`."""
    if math.prod(sides) == 1:
        return matrices.reshape(*matrices.shape, *sides)
    kernel: torch.Tensor = matrices.new_zeros(*matrices.shape, math.prod(sides))
    if (positions == positions[0, 0]).all():  # one tap for all: ten times faster than a scatter
        kernel[..., int(positions[0, 0])] = matrices
    else:
        index = positions.unsqueeze(2 if transposed else 1).expand(matrices.shape).unsqueeze(-1)
        kernel.scatter_(-1, index, matrices.unsqueeze(-1))
    kernels: torch.Tensor = kernel.unflatten(-1, tuple(sides))
    return kernels


def _center(groups: int, channels: int, sides: Sequence[int], generator: torch.Generator) -> torch.Tensor:
    del generator  # nothing to draw
    flat = 0
    for side in sides:
        flat = flat * side + (side - 1) // 2
    return torch.full((groups, channels), flat, device="cpu")


def _random(groups: int, channels: int, sides: Sequence[int], generator: torch.Generator) -> torch.Tensor:
    return torch.randint(math.prod(sides), (groups, channels), generator=generator, device="cpu")


_TAPS = {"center": _center, "random": _random}
