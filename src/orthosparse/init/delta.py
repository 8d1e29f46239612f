"""Kernels that hold one matrix: each of its columns sits at one tap, and every other tap is zero.

Kernels are [groups, first, second, taps] here, and their matrices [groups, first, second * phases]: with a stride,
every channel has a column for each of its phases (see `strides`). Taps come shaped for broadcasting over
[groups, first, second, phases].
"""

import math
from collections.abc import Sequence

import torch

from orthosparse.checks import check_flag
from orthosparse.registry import lookup
from orthosparse.strides import Phase

TAPS = {
    "center": "at the centre of the kernel, or in the window of its stride",
    "random": "at a tap of its own for each input channel",
    "mask": "at the tap that each input channel uses most in the mask",
}


def taps(
    shape: Sequence[int],
    phases: Sequence[Phase],
    *,
    tap: str,
    transposed: bool,
    generator: torch.Generator,
    goal: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the tap of every column of kernels [groups, first, second, *sides], as a flat index.

    Without a stride a tap belongs to an input channel: of the first side, where the convolution is transposed.

    Args:
        goal: the mask, in the shape of the kernels, whose most used taps "mask" takes; among equals, the centre if it
            is one of them, else the first.

    Raises:
        ValueError: there is no tap of that name, or "mask" without a mask.

    Example:
        >>> goal = torch.tensor([[[[False, True, True]], [[True, False, True]]]])
        >>> phases, g = [([0, 1, 2], 1)], torch.Generator()
        >>> taps((1, 2, 1, 3), phases, tap="mask", transposed=False, generator=g, goal=goal).flatten()
        tensor([2])
    """
    check_flag(transposed, "transposed")
    lookup(TAPS, tap, "tap")
    if tap == "mask" and goal is None:
        raise ValueError('tap: "mask" expects a mask to align to (align); got none')
    groups, first, second = shape[:3]
    by_first = transposed and len(phases) == 1
    channels = (groups, first, 1) if by_first else (groups, 1, second)
    positions = []
    for candidates, nearest in phases:
        indices = torch.tensor(candidates, device="cpu")
        if tap == "random":
            positions.append(indices[torch.randint(len(indices), channels, generator=generator, device="cpu")])
        elif goal is None or tap == "center":
            positions.append(torch.full(channels, nearest, device="cpu"))
        else:
            uses = 2 * goal[..., indices].sum(2 if by_first else 1, keepdim=True)
            uses[..., candidates.index(nearest)] += 1
            positions.append(indices[uses.argmax(-1)])
    return torch.stack(positions, -1)


def embed(matrices: torch.Tensor, positions: torch.Tensor, sides: Sequence[int]) -> torch.Tensor:
    """Return [groups, first, second, *sides] kernels: `matrices` at the taps of `taps`."""
    columns = matrices.unflatten(2, (-1, positions.shape[3]))
    if math.prod(sides) == 1:
        pointwise: torch.Tensor = columns.reshape(*columns.shape[:3], *sides)
        return pointwise
    kernel: torch.Tensor = columns.new_zeros(*columns.shape[:3], math.prod(sides))
    if (positions == positions[:1, :1, :1]).all():  # the same for all channels: ten times faster than a scatter
        for phase, tap in enumerate(positions[0, 0, 0].tolist()):
            kernel[..., tap] = columns[..., phase]
    else:
        kernel.scatter_(-1, positions.expand(columns.shape), columns)
    kernels: torch.Tensor = kernel.unflatten(-1, tuple(sides))
    return kernels


def extract(kernels: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Return the matrices that kernels [groups, first, second, taps] have at the taps of `taps`."""
    return kernels.gather(-1, positions.expand(*kernels.shape[:3], -1)).flatten(2)
