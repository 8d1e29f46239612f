"""Strides: which taps of a kernel read which pixels, and a strided convolution as one of stride 1 with more channels.

Along each side, the tap of index t lies ``dilation * t - padding`` pixels from its output. That offset
modulo the stride is the tap's phase. A convolution of stride s reads its input as s interleaved signals, one for each
phase, so that it is a convolution of stride 1 whose input channels are the pairs of a channel and a phase; the
pixels of a phase without a tap are never read. A transposed convolution is the adjoint, and writes its outputs so.
"""

import math
from collections.abc import Sequence
from itertools import product

import torch

from orthosparse.checks import check_per_side

# The pixels of one phase, seen from the kernel: flat indices of the taps that read them, and the tap that reads those
# nearest to the output. The nearest taps of all phases form a window, and the windows of neighbouring outputs tile the
# image.
Phase = tuple[list[int], int]


def phases_of(
    sides: Sequence[int],
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
) -> list[Phase]:
    """Return the phases of a kernel that have a tap, in the order of their pixels.

    Along a side of stride 1 there is one phase with all taps; the nearest is the centre.

    Raises:
        TypeError, ValueError: an argument is neither an integer nor one integer for each side of the kernel.

    Example:
        >>> phases_of([3], stride=2, padding=1)  # taps at -1, 0 and 1: the window is the last two
        [([1], 1), ([0, 2], 2)]
        >>> phases_of([1], stride=2)  # every other pixel is never read
        [([0], 0)]
    """
    steps = check_per_side(stride, len(sides), "stride", least=1)
    pads = check_per_side(padding, len(sides), "padding", least=0)
    gaps = check_per_side(dilation, len(sides), "dilation", least=1)
    by_side = [_phases_of_side(*side) for side in zip(sides, steps, pads, gaps, strict=True)]
    return [
        (
            [_flat(each, sides) for each in product(*(taps for taps, _ in chosen))],
            _flat([tap for _, tap in chosen], sides),
        )
        for chosen in product(*by_side)
    ]


def _phases_of_side(side: int, stride: int, padding: int, dilation: int) -> list[Phase]:
    """Return the phases along one side."""
    if stride == 1:
        return [(list(range(side)), (side - 1) // 2)]
    taps: dict[int, list[int]] = {}
    for tap in range(side):
        taps.setdefault((dilation * tap - padding) % stride, []).append(tap)
    # in the output's own window if possible
    return [
        (members, min(members, key=lambda tap: (abs((dilation * tap - padding) // stride), tap)))
        for _, members in sorted(taps.items())
    ]


def _flat(taps: Sequence[int], sides: Sequence[int]) -> int:
    flat = 0
    for tap, side in zip(taps, sides, strict=True):
        flat = flat * side + tap
    return flat


def polyphase(kernel: torch.Tensor, stride: Sequence[int]) -> torch.Tensor:
    """Return the kernel of stride 1 that is equivalent to a strided one, [groups, first, second * phases, *sides].

    The padding does not matter: it only shifts the signal, which is an isometry.

    Example:
        >>> polyphase(torch.arange(3.0).view(1, 1, 1, 3), [2])
        tensor([[[[0., 2.],
                  [1., 0.]]]])
    """
    for axis, step in enumerate(stride):
        side = 3 + axis
        count = math.ceil(kernel.shape[side] / step)
        padded = kernel.new_zeros(*kernel.shape[:side], count * step, *kernel.shape[side + 1 :])
        padded.narrow(side, 0, kernel.shape[side]).copy_(kernel)
        kernel = padded.unflatten(side, (count, step)).movedim(side + 1, 3).flatten(2, 3)  # channels first, then phases
    return kernel


def structural_rank(kernels: torch.Tensor, stride: Sequence[int]) -> tuple[int, int]:
    """Return the rank that zero rows and columns leave kernels [groups, first, second, *sides], and their full rank.

    Both are counted at each position of the smaller signal and summed over the groups. The first is an upper bound of
    the rank, which an orthogonal matrix reaches.

    Example:
        >>> structural_rank(torch.eye(4, 1).view(1, 4, 1, 1), [2])  # one tap of four outputs reads every other pixel
        (1, 2)
    """
    live = polyphase(kernels, stride).ne(0).flatten(3).any(3)
    left = torch.minimum(live.any(2).sum(1), live.any(1).sum(1))
    return int(left.sum()), len(live) * min(live.shape[1:])


def phases_read(kernels: torch.Tensor, stride: Sequence[int]) -> int:
    """Return how many of the ``prod(stride)`` phases have a tap that is not zero."""
    live = polyphase(kernels, stride).ne(0).flatten(3).any(3).any(1).any(0)
    return int(live.unflatten(0, (-1, math.prod(stride))).any(0).sum())


def dilated(kernel: torch.Tensor, dilation: Sequence[int]) -> torch.Tensor:
    """Return a kernel [first, second, *sides] with the zeros that dilation puts between its taps.

    Example:
        >>> dilated(torch.ones(1, 1, 2), [3])
        tensor([[[1., 0., 0., 1.]]])
    """
    if all(step == 1 for step in dilation):
        return kernel
    sides = [step * (side - 1) + 1 for step, side in zip(dilation, kernel.shape[2:], strict=True)]
    spread = kernel.new_zeros(*kernel.shape[:2], *sides)
    spread[(slice(None), slice(None), *(slice(None, None, step) for step in dilation))] = kernel
    return spread
