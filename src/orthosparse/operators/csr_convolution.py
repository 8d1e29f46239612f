"""Convolutions of single entries on the CPU for inference, as an operator of torch.

A weight is held as the matrix ``[outputs, inputs * taps]`` in compressed rows. Where padded pictures are stored one
pixel after the other, a tap of a channel reads the same numbers as another one, from another beginning. So each column
of the matrix multiplies a window of the memory that holds the pictures, and nothing is copied for each tap. The result
has some columns too many, those of windows that reach around a border; they are left out. With a stride, pixels are
first sorted by their remainders.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from orthosparse.operators import csr_kernel
from orthosparse.operators.csr_inference import check_without_gradients, is_direct

_library = torch.library.Library("orthosparse", "FRAGMENT")
_library.define(
    "csr_convolution(Tensor x, Tensor values, Tensor? bias, Tensor row_starts, Tensor columns, int[] kernel, "
    "int[] stride, int[] padding, int[] dilation) -> Tensor"
)


class Geometry(NamedTuple):
    """What a convolution does to a picture, one number a side; padding is zeros, the same on both ends."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]

    def outputs(self, picture: Sequence[int]) -> list[int]:
        """Return the sides of the picture that comes out."""
        return [
            (side + 2 * padding - dilation * (taps - 1) - 1) // stride + 1
            for side, taps, stride, padding, dilation in zip(picture, *self, strict=True)
        ]

    def sides(self, picture: Sequence[int]) -> tuple[int, ...]:
        """Return the sides of a padded picture, of the pixels of one remainder."""
        each = zip(picture, self.padding, self.stride, strict=True)
        return tuple(-(-(side + 2 * padding) // stride) for side, padding, stride in each)


def has_convolutions() -> bool:
    """Whether the kernel was compiled when the package was built; there is no other way."""
    return csr_kernel.is_built()


def csr_convolution(
    x: Tensor,
    values: Tensor,
    bias: Tensor | None,
    row_starts: Tensor,
    columns: Tensor,
    *,
    inputs: int,
    geometry: Geometry,
) -> Tensor:
    """Return the convolution of pictures, without gradients; contiguous.

    Args:
        x: ``[batch, inputs, *picture]``.
        columns: ``channel * taps + tap``, of channels counted over all groups.

    Raises:
        ValueError: pictures of another shape or type, or too small ones.
    """
    check_without_gradients(x, values)
    if x.dim() != len(geometry.kernel) + 2 or x.shape[1] != inputs or x.dtype != values.dtype:
        sides = ", side" * len(geometry.kernel)
        expected = f"[batch, {inputs}{sides}] in {values.dtype}"
        raise ValueError(f"x: expected pictures of shape {expected}; got {tuple(x.shape)} in {x.dtype}")
    if min(geometry.outputs(x.shape[2:])) < 1:
        raise ValueError(f"x: expected pictures that the kernel {geometry.kernel} fits into; got {tuple(x.shape)}")
    call: Any = _convolution if is_direct(x) else torch.ops.orthosparse.csr_convolution
    result: Tensor = call(x, values, bias, row_starts, columns, *geometry)
    return result


def _convolution(
    x: Tensor, values: Tensor, bias: Tensor | None, row_starts: Tensor, columns: Tensor, *sides: Sequence[int]
) -> Tensor:
    geometry = Geometry(*map(tuple, sides))
    ones = (1,) * len(geometry.kernel)
    if geometry.kernel == ones and not any(geometry.padding):  # what the stride skips need not be sorted
        every: tuple[Any, ...] = (..., *(slice(None, None, step) for step in geometry.stride))
        x = x[every]
        geometry = geometry._replace(stride=ones)
    outputs, padded = geometry.outputs(x.shape[2:]), geometry.sides(x.shape[2:])
    picture, pitches = math.prod(padded), _pitches(padded)
    table = _table(x.shape[1], len(x), padded, geometry)
    last = (len(x) - 1) * picture + sum((side - 1) * pitch for side, pitch in zip(outputs, pitches, strict=True))
    samples = _sorted(x, padded, geometry)
    y = csr_kernel.window_product(samples, last + 1, values, bias, row_starts, columns, table)
    return y.as_strided((len(x), len(y), *outputs), (picture, last + 1, *pitches)).contiguous()


def _sorted(x: Tensor, padded: Sequence[int], geometry: Geometry) -> Tensor:
    """Pictures as ``[channels, *remainders, batch, *padded]``: pixel i of remainder r is pixel ``stride * i + r``."""
    x, stride = x.transpose(0, 1), geometry.stride
    room = [side * step for side, step in zip(padded, stride, strict=True)]
    if room != list(x.shape[2:]):
        whole = x.new_zeros(*x.shape[:2], *room)
        inside = [slice(pad, pad + side) for pad, side in zip(geometry.padding, x.shape[2:], strict=True)]
        whole[(slice(None), slice(None), *inside)] = x
        x = whole
    if max(stride) > 1:
        x = x.reshape(*x.shape[:2], *(each for pair in zip(padded, stride, strict=True) for each in pair))
        places = range(2, x.dim())
        x = x.permute(0, *places[1::2], 1, *places[::2])
    return x.contiguous()


@lru_cache(maxsize=1024)
def _table(channels: int, batch: int, padded: tuple[int, ...], geometry: Geometry) -> Tensor:
    """Where the window of each column begins."""
    steps = math.prod(geometry.stride)
    plane = batch * math.prod(padded)
    table = steps * plane * torch.arange(channels, device="cpu")
    sides = zip(geometry.kernel, geometry.stride, geometry.dilation, _pitches(padded), strict=True)
    remainders = _pitches(geometry.stride)
    for (taps, stride, dilation, pitch), remainder in zip(sides, remainders, strict=True):
        at = dilation * torch.arange(taps, device="cpu")
        table = table[..., None] + at // stride * pitch + at % stride * remainder * plane
    return table.flatten().to(torch.int32)


def _pitches(sides: Sequence[int]) -> list[int]:
    """How far apart neighbours along each side lie in memory."""
    return [math.prod(sides[number + 1 :]) for number in range(len(sides))]


def _fake(
    x: Tensor, values: Tensor, bias: Tensor | None, row_starts: Tensor, columns: Tensor, *sides: Sequence[int]
) -> Tensor:
    del values, bias, columns
    return x.new_empty(x.shape[0], len(row_starts) - 1, *Geometry(*map(tuple, sides)).outputs(x.shape[2:]))


_library.impl("csr_convolution", _convolution, "CPU")
torch.library.register_fake("orthosparse::csr_convolution", _fake, lib=_library)
