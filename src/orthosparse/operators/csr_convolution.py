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
from orthosparse.operators.csr_inference import prepared
from orthosparse.operators.registration import is_direct

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
    x = prepared(x, values)
    if x.dim() != len(geometry.kernel) + 2 or x.shape[1] != inputs or x.dtype != values.dtype:
        sides = ", side" * len(geometry.kernel)
        expected = f"[batch, {inputs}{sides}] in {values.dtype}"
        raise ValueError(f"x: expected pictures of shape {expected}; got {tuple(x.shape)} in {x.dtype}")
    if min(geometry.outputs(x.shape[2:])) < 1:
        raise ValueError(f"x: expected pictures that the kernel {geometry.kernel} fits into; got {tuple(x.shape)}")
    call: Any = _convolution if is_direct(x) else torch.ops.orthosparse.csr_convolution
    result: Tensor = call(x, values, bias, row_starts, columns, *geometry)
    return result


class _Plan(NamedTuple):
    """How pictures of one shape are convolved.

    Attributes:
        rooms: sides of a padded picture, of the pixels of one remainder.
        table: where the window of each column of the matrix begins.
        length: of a window.
        outputs: sides of the results.
        strides: where these lie in the product, in the order ``batch, channels, *outputs``.
    """

    batch: int
    rooms: list[int]
    table: Tensor
    length: int
    outputs: list[int]
    strides: tuple[int, ...]


def _convolution(
    x: Tensor, values: Tensor, bias: Tensor | None, row_starts: Tensor, columns: Tensor, *sides: Sequence[int]
) -> Tensor:
    geometry = Geometry(*map(tuple, sides))
    ones = (1,) * len(geometry.kernel)
    if geometry.kernel == ones and not any(geometry.padding):  # what the stride skips need not be sorted
        every: tuple[Any, ...] = (..., *(slice(None, None, step) for step in geometry.stride))
        x, geometry = x[every], geometry._replace(stride=ones)
    plan = _plan(tuple(x.shape), geometry)
    if geometry.stride != ones or any(geometry.padding) or len(x) > 1 or not x.is_contiguous():
        x = csr_kernel.arrange(x, step=geometry.stride, padding=geometry.padding, rooms=plan.rooms)
    y = csr_kernel.window_product(x, plan.length, values, bias, row_starts, columns, plan.table)
    y = y.as_strided((plan.batch, len(y), *plan.outputs), plan.strides)
    if y.is_contiguous():
        return y
    zeros = (0,) * len(ones)
    return csr_kernel.arrange(y.transpose(0, 1), step=ones, padding=zeros, rooms=plan.outputs).view(y.shape)


@lru_cache(maxsize=1024)
def _plan(shape: tuple[int, ...], geometry: Geometry) -> _Plan:
    batch, channels, *picture = shape
    each = zip(picture, geometry.padding, geometry.stride, strict=True)
    rooms = [-(-(side + 2 * padding) // stride) for side, padding, stride in each]
    outputs, pitches = geometry.outputs(picture), _pitches(rooms)
    plane = batch * math.prod(rooms)
    table = math.prod(geometry.stride) * plane * torch.arange(channels, device="cpu")
    taps = zip(geometry.kernel, geometry.stride, geometry.dilation, pitches, _pitches(geometry.stride), strict=True)
    for number, stride, dilation, pitch, remainder in taps:
        at = dilation * torch.arange(number, device="cpu")
        table = table[..., None] + at // stride * pitch + at % stride * remainder * plane
    last = (batch - 1) * math.prod(rooms) + sum(
        (side - 1) * pitch for side, pitch in zip(outputs, pitches, strict=True)
    )
    return _Plan(
        batch, rooms, table.flatten().to(torch.int32), last + 1, outputs, (math.prod(rooms), last + 1, *pitches)
    )


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
