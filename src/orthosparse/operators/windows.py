"""CSR convolutions with the compiled kernel, and their gradients, as products with windows of memory.

A weight is the matrix ``[outputs, inputs * taps]`` in CSR format. If the pixels of padded images are stored one after
the other, all taps of a channel read the same numbers, each from its own offset. So each column of the matrix
multiplies a window of the memory that holds the images, and nothing is copied for each tap. The result has extra
columns, for windows that wrap around a border; they are dropped. With a stride, pixels are first sorted by their
remainders. The gradients are computed in the same way, from the gradient of the outputs with zeros in the columns that
were dropped.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from orthosparse.operators import csr_kernel
from orthosparse.operators.block_plan import starts_of
from orthosparse.operators.registration import check_like

# Numbers in a cache line. Planes lie an odd number of lines apart: at a power of two they would share one cache set.
_LINE = 16


class Geometry(NamedTuple):
    """Sizes of a convolution, one for each spatial dimension; padding is with zeros, equally at both ends."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]

    def outputs(self, spatial: Sequence[int]) -> list[int]:
        """Return the spatial sizes of the output for those of the input."""
        return [
            (side + 2 * padding - dilation * (taps - 1) - 1) // stride + 1
            for side, taps, stride, padding, dilation in zip(spatial, *self, strict=True)
        ]


def has_convolutions() -> bool:
    """Whether the kernel was compiled when the package was built; convolutions have no other backend."""
    return csr_kernel.is_built()


def check_input(x: Tensor, values: Tensor, inputs: int, geometry: Geometry) -> None:
    """Raise unless the input fits a convolution.

    Raises:
        ValueError: `x` has another shape or device than the weight expects, or is smaller than the kernel.
        TypeError: `x` has another dtype than the weight.
    """
    if x.dim() != len(geometry.kernel) + 2 or x.shape[1] != inputs:
        sides = ", side" * len(geometry.kernel)
        raise ValueError(f"x: expected shape [batch, {inputs}{sides}]; got {tuple(x.shape)}")
    if min(geometry.outputs(x.shape[2:])) < 1:
        raise ValueError(
            f"x: expected an input that the kernel {geometry.kernel} fits into; got shape {tuple(x.shape)}"
        )
    check_like(x, values)


def transposed_tables(rows: Tensor, columns: Tensor, inputs: int, geometry: Geometry) -> tuple[Tensor, Tensor, Tensor]:
    """Return the int32 tables of the matrix of `input_grad`, for entries at ``(rows, columns)`` of the weight.

    They are its row starts and column indices, with one row for each channel and remainder of the stride, and the index
    in the weight of each of its entries.
    """
    taps, steps = math.prod(geometry.kernel), math.prod(geometry.stride)
    remainders, _ = _taps(geometry, [0] * len(geometry.kernel))
    tap = columns.long() % taps
    key = columns.long() // taps * steps + remainders.to(columns.device)[tap]
    order = key.argsort(stable=True)
    tables = starts_of(key[order], inputs * steps), (rows.long() * taps + tap)[order], order
    return tuple(table.to(torch.int32) for table in tables)  # type: ignore[return-value]


def convolution(
    x: Tensor, values: Tensor, bias: Tensor | None, row_starts: Tensor, columns: Tensor, geometry: Geometry
) -> Tensor:
    """Return the convolution of ``[batch, inputs, *spatial]``, contiguous.

    Args:
        columns: ``channel * taps + tap``, with channels counted over all groups.
    """
    ones = (1,) * len(geometry.kernel)
    if geometry.kernel == ones and not any(geometry.padding):  # pixels that the stride skips need not be sorted
        every: tuple[Any, ...] = (..., *(slice(None, None, step) for step in geometry.stride))
        x, geometry = x[every], geometry._replace(stride=ones)
    plan = _plan(tuple(x.shape), len(row_starts) - 1, geometry)
    if not plan.length:
        return x.new_empty(plan.batch, len(row_starts) - 1, *plan.outputs)
    if geometry.stride != ones or any(geometry.padding) or plan.batch > 1 or not x.is_contiguous():
        x = _arranged(x, plan, geometry)
    y = csr_kernel.product(x, values, bias, row_starts, columns, table=plan.input_windows, length=plan.length)
    return _contiguous(y.as_strided((plan.batch, len(y), *plan.outputs), plan.strides))


def input_grad(
    grad: Tensor, values: Tensor, tables: Sequence[Tensor], geometry: Geometry, spatial: Sequence[int]
) -> Tensor:
    """Return the gradient of the inputs, ``[batch, inputs, *spatial]``, contiguous.

    Args:
        grad: ``[batch, outputs, *spatial]``.
        tables: from `transposed_tables`.
    """
    starts, others, order = tables
    channels = (len(starts) - 1) // math.prod(geometry.stride)
    plan = _plan((len(grad), channels, *spatial), grad.shape[1], geometry)
    if not plan.length:
        return grad.new_zeros(plan.batch, channels, *spatial)
    windows = _arranged_grad(grad, plan, before=plan.reach)
    planes = csr_kernel.product(
        windows, values, None, starts, others, order, table=plan.output_windows, length=plan.plane
    )
    planes = planes.view(channels, *geometry.stride, plan.batch, *plan.rooms)
    sides = len(spatial)
    if max(geometry.stride) > 1:
        each = [side for number in range(sides) for side in (2 + sides + number, 1 + number)]
        planes = planes.permute(0, 1 + sides, *each)
    planes = planes.reshape(channels, plan.batch, *map(math.prod, zip(plan.rooms, geometry.stride, strict=True)))
    for number, (side, padding) in enumerate(zip(spatial, geometry.padding, strict=True)):
        planes = planes.narrow(2 + number, padding, side)
    return _contiguous(planes.transpose(0, 1))


def weight_grad(grad: Tensor, x: Tensor, row_starts: Tensor, columns: Tensor, geometry: Geometry) -> Tensor:
    """Return the gradient of the values, ``[1, entries]``."""
    plan = _plan(tuple(x.shape), grad.shape[1], geometry)
    if not plan.length:
        return x.new_zeros(1, len(columns))
    windows = _arranged(x, plan, geometry, after=plan.reach)
    rows = _arranged_grad(grad, plan).view(grad.shape[1], plan.pitch)
    return csr_kernel.sampled(rows, windows, row_starts, columns, plan.input_windows)


class _Plan(NamedTuple):
    """How images of one shape are convolved.

    Attributes:
        rooms: spatial sizes of a padded image, counting the pixels of one remainder.
        plane: number of pixels of one channel and one remainder, in all images.
        pitch: distance between these planes.
        reach: offset of the last tap in its plane. A plane of outputs ends with at least as many zeros, so that a
            window that begins before a plane reads only zeros there.
        length: length of a window of the inputs.
        outputs: spatial sizes of the results.
        strides: strides of the results in the product, in the order ``batch, channels, *outputs``.
        input_windows: offset in the inputs of the window of each column of the matrix.
        output_windows: offset in the gradients of the outputs of the window of each row and tap.
    """

    batch: int
    rooms: list[int]
    plane: int
    pitch: int
    reach: int
    length: int
    outputs: list[int]
    strides: tuple[int, ...]
    input_windows: Tensor
    output_windows: Tensor


@lru_cache(maxsize=1024)
def _plan(shape: tuple[int, ...], rows: int, geometry: Geometry) -> _Plan:
    batch, channels, *spatial = shape
    each = zip(spatial, geometry.padding, geometry.stride, strict=True)
    rooms = [-(-(side + 2 * padding) // stride) for side, padding, stride in each]
    outputs, pitches = geometry.outputs(spatial), _pitches(rooms)
    plane, steps = batch * math.prod(rooms), math.prod(geometry.stride)
    remainders, shifts = _taps(geometry, pitches)
    reach = int(shifts.max())
    last = sum((side - 1) * pitch for side, pitch in zip(outputs, pitches, strict=True))
    length = plane - math.prod(rooms) + last + 1 if batch else 0
    ones = (1,) * len(geometry.kernel)
    as_is = geometry.stride == ones and not any(geometry.padding) and batch == 1  # no copy if the input is contiguous
    pitch = plane if as_is else _LINE * (plane // _LINE + 1 + plane // _LINE % 2)
    channel, row = (torch.arange(number, device="cpu")[:, None] for number in (channels, rows))
    return _Plan(
        batch,
        rooms,
        plane,
        pitch,
        reach,
        length,
        outputs,
        (math.prod(rooms), length, *pitches),
        ((channel * steps + remainders) * pitch + shifts).flatten(),
        (row * pitch + reach - shifts).flatten(),
    )


def _taps(geometry: Geometry, pitches: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Return, for each tap, the index of the remainder whose pixels it reads, and its offset among them."""
    remainders = shifts = torch.zeros(1, dtype=torch.int64, device="cpu")
    each = zip(geometry.kernel, geometry.stride, geometry.dilation, pitches, _pitches(geometry.stride), strict=True)
    for taps, stride, dilation, pitch, remainder in each:
        at = dilation * torch.arange(taps, device="cpu")
        remainders = (remainders[:, None] + at % stride * remainder).flatten()
        shifts = (shifts[:, None] + at // stride * pitch).flatten()
    return remainders, shifts


def _pitches(sides: Sequence[int]) -> list[int]:
    """Return the strides of a contiguous tensor with these sizes."""
    return [math.prod(sides[number + 1 :]) for number in range(len(sides))]


def _arranged(x: Tensor, plan: _Plan, geometry: Geometry, *, after: int = 0) -> Tensor:
    """Return the input in the layout whose windows are read."""
    step, padding = geometry.stride, geometry.padding
    return csr_kernel.arrange(x, step=step, padding=padding, rooms=plan.rooms, pitch=plan.pitch, after=after)


def _arranged_grad(grad: Tensor, plan: _Plan, *, before: int = 0) -> Tensor:
    """Return the gradients of the outputs at the positions of the outputs, with zeros between them."""
    step, padding = (1,) * (grad.dim() - 2), (0,) * (grad.dim() - 2)
    return csr_kernel.arrange(grad, step=step, padding=padding, rooms=plan.rooms, pitch=plan.pitch, before=before)


def _contiguous(y: Tensor) -> Tensor:
    """Return ``[batch, channels, *spatial]``, contiguous."""
    if y.is_contiguous():
        return y
    sides = y.dim() - 2
    copy = csr_kernel.arrange(y.transpose(0, 1), step=(1,) * sides, padding=(0,) * sides, rooms=y.shape[2:])
    return copy.view(y.shape)
