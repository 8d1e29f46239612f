"""Kernels that hold one matrix: each of its columns lies at one tap, and all other taps are zero.

Kernels are [groups, first, second, taps] here, and their matrices [groups, first, second * phases]: with a stride,
every channel has a column for each of its phases (see `strides`). Taps are shaped for broadcasting over
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

    Without a stride, a tap belongs to an input channel, in the first dimension if the convolution is transposed.

    Args:
        goal: the mask that "mask" counts taps in, shaped like the kernels; ties go to the centre, then to the first.

    Raises:
        ValueError: `tap` is unknown, or "mask" without a mask.

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
    by_phase = []
    for members, nearest in phases:
        own = torch.tensor(members, device="cpu")
        if tap == "random":
            by_phase.append(own[torch.randint(len(own), channels, generator=generator, device="cpu")])
        elif goal is None or tap == "center":
            by_phase.append(torch.full(channels, nearest, device="cpu"))
        else:
            uses = 2 * goal[..., own].sum(2 if by_first else 1, keepdim=True)
            uses[..., members.index(nearest)] += 1
            by_phase.append(own[uses.argmax(-1)])
    return torch.stack(by_phase, -1)


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
