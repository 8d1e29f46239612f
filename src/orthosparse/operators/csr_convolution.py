"""CSR convolutions on the CPU, as torch operators that can be differentiated, compiled and exported.

A weight is stored as the values of its active entries, ``[1, entries]``, row by row of the matrix ``[outputs, inputs *
taps]``, and int32 index tables. The dtypes are float32 and float64; under autocast, float32.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from orthosparse.operators import windows
from orthosparse.operators.registration import Kind, cast, linear, register, under_autocast
from orthosparse.operators.windows import Geometry, check_input


def csr_convolution(
    x: Tensor, values: Tensor, bias: Tensor | None, *tables: Tensor, inputs: int, geometry: Geometry
) -> Tensor:
    """Return the convolution of `x` with a sparse weight; contiguous.

    Args:
        x: ``[batch, inputs, *spatial]`` on the CPU.
        values: ``[1, entries]``.
        tables: ``row_starts`` and ``columns`` (each ``channel * taps + tap``, with channels counted over all groups),
            then the result of `transposed_tables`.

    Raises:
        ValueError: `x` has another shape or device than the weight expects, or is smaller than the kernel.
        TypeError: `x` has another dtype than the weight.
    """
    if under_autocast(x):
        x, values, bias = cast(torch.float32, x, values, bias)
    check_input(x, values, inputs, geometry)
    return linear(_KIND, x, values, bias, *tables, inputs, *geometry, x.shape[2:])


def _linear(x: Tensor, values: Tensor, bias: Tensor | None, *index: Any) -> Tensor:
    (row_starts, columns, *_), geometry, inputs, _ = _parts(index)
    return windows.convolution(_checked(x, inputs), values, bias, row_starts, columns, geometry)


def _input_grad(grad: Tensor, values: Tensor, *index: Any) -> Tensor:
    (_, _, *transposed), geometry, inputs, outputs = _parts(index)
    return windows.input_grad(_checked(grad, outputs), values, transposed, geometry, inputs[1:])


def _weight_grad(grad: Tensor, x: Tensor, *index: Any) -> Tensor:
    (row_starts, columns, *_), geometry, inputs, outputs = _parts(index)
    return windows.weight_grad(_checked(grad, outputs), _checked(x, inputs), row_starts, columns, geometry)


def _parts(index: Sequence[Any]) -> tuple[Sequence[Tensor], Geometry, tuple[int, ...], tuple[int, ...]]:
    """Return the tables, the geometry, and ``(channels, *spatial)`` of the inputs and of the outputs."""
    *tables, channels, kernel, stride, padding, dilation, spatial = index
    geometry = Geometry(tuple(kernel), tuple(stride), tuple(padding), tuple(dilation))
    return tables, geometry, (channels, *spatial), (len(tables[0]) - 1, *geometry.outputs(spatial))


def _checked(x: Tensor, expected: tuple[int, ...]) -> Tensor:
    """Return `x` if it has the expected shape: the kernel would read past the end of a smaller tensor."""
    if x.shape[1:] != expected:
        raise ValueError(f"expected shape [batch, {', '.join(map(str, expected))}]; got {tuple(x.shape)}")
    return x


def _fake_linear(x: Tensor, values: Tensor, bias: Tensor | None, *index: Any) -> Tensor:
    del values, bias
    return x.new_empty(x.shape[0], *_parts(index)[3])


def _fake_input_grad(grad: Tensor, values: Tensor, *index: Any) -> Tensor:
    del values
    return grad.new_empty(grad.shape[0], *_parts(index)[2])


def _fake_weight_grad(grad: Tensor, x: Tensor, *index: Any) -> Tensor:
    del grad
    return x.new_empty(1, len(index[1]))


_KIND = Kind(
    "csr_convolution",
    "Tensor row_starts, Tensor columns, Tensor input_starts, Tensor input_taps, Tensor by_input, int inputs, "
    "int[] kernel, int[] stride, int[] padding, int[] dilation, SymInt[] picture",
    ("CPU",),
    _linear,
    _input_grad,
    _weight_grad,
    _fake_linear,
    _fake_input_grad,
    _fake_weight_grad,
    features=1,
)
register(_KIND)
