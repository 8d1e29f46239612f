"""CSR products on the CPU, as torch operators that can be differentiated, compiled and exported.

A weight ``[outputs, inputs]`` is stored as the values of its active entries, ``[1, entries]``, row by row, and int32
index tables. A compiled kernel computes the products, or torch's CSR tensors if the package was built without a
compiler. Both read and write samples features first in memory, so nothing is transposed between two sparse layers. The
dtypes are float32 and float64; under autocast, float32.
"""

import math

import torch
from torch import Tensor

from orthosparse.operators import csr_kernel, csr_torch
from orthosparse.operators.block_plan import starts_of
from orthosparse.operators.registration import Kind, cast, check_factors, linear, matrix, register, under_autocast

_backend = csr_kernel if csr_kernel.is_built() else csr_torch


def csr_linear(x: Tensor, values: Tensor, bias: Tensor | None, *tables: Tensor) -> Tensor:
    """Return ``x @ weight.T + bias`` for a sparse weight.

    Args:
        x: ``[..., inputs]`` on the CPU.
        values: ``[1, entries]``.
        tables: from `csr_tables`.
    """
    if under_autocast(x):
        x, values, bias = cast(torch.float32, x, values, bias)
    check_factors(x, values, inputs=len(tables[2]) - 1)
    # torch.jit.trace compares its graph with one that it traces without gradients.
    traced = not torch.compiler.is_compiling() and torch._C._is_tracing()
    backward = torch.is_grad_enabled() and not traced
    return linear(_KIND, _laid_out(x) if backward else x, values, bias, *tables)


def csr_tables(rows: Tensor, columns: Tensor, shape: tuple[int, int]) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the int32 tables of entries at ``(rows, columns)``, which are sorted by row, then by column.

    They are ``row_starts`` and ``columns``, as in a CSR tensor; ``column_starts`` and ``column_rows``, those of the
    transposed matrix; and ``by_column``, the index in the matrix of each entry of the transposed matrix.
    """
    by_column = columns.argsort(stable=True)
    tables = starts_of(rows, shape[0]), columns, starts_of(columns, shape[1]), rows[by_column], by_column
    return tuple(table.to(torch.int32) for table in tables)  # type: ignore[return-value]


def _linear(x: Tensor, values: Tensor, bias: Tensor | None, *tables: Tensor) -> Tensor:
    row_starts, columns, column_starts, *_ = tables
    return _unflatten(_backend.product(_features_first(x, column_starts), values, bias, row_starts, columns), x)


def _input_grad(grad: Tensor, values: Tensor, *tables: Tensor) -> Tensor:
    row_starts, _, *transposed = tables
    return _unflatten(_backend.product(_features_first(grad, row_starts), values, None, *transposed), grad)


def _weight_grad(grad: Tensor, x: Tensor, *tables: Tensor) -> Tensor:
    row_starts, columns, column_starts, *_ = tables
    y_grad, x = _features_first(grad, row_starts), _features_first(x, column_starts)
    values_grad: Tensor = _backend.sampled(y_grad, x, row_starts, columns)
    return values_grad


def _features_first(x: Tensor, starts: Tensor) -> Tensor:
    """Return samples as ``[features, batch]``, contiguous; `starts` has one more element than features."""
    if x.shape[-1] != len(starts) - 1:
        raise ValueError(f"expected shape [..., {len(starts) - 1}]; got {tuple(x.shape)}")
    return matrix(x).T.contiguous()


def _laid_out(x: Tensor) -> Tensor:
    """Return the same samples, features first in memory: forward and backward then transpose them only once."""
    return _unflatten(matrix(x).T.contiguous(), x)


def _unflatten(y: Tensor, like: Tensor) -> Tensor:
    """Return the transposed view of ``[features, rows]``, with the leading dimensions of `like`."""
    return y.T if like.dim() == 2 else y.T.view(*like.shape[:-1], len(y))


def _empty(like: Tensor, features: int) -> Tensor:
    return _unflatten(like.new_empty(features, math.prod(like.shape[:-1])), like)


def _fake_linear(x: Tensor, values: Tensor, bias: Tensor | None, *tables: Tensor) -> Tensor:
    del values, bias
    return _empty(x, len(tables[0]) - 1)


def _fake_input_grad(grad: Tensor, values: Tensor, *tables: Tensor) -> Tensor:
    del values
    return _empty(grad, len(tables[2]) - 1)


def _fake_weight_grad(grad: Tensor, x: Tensor, *tables: Tensor) -> Tensor:
    del grad
    return x.new_empty(1, len(tables[1]))


_KIND = Kind(
    "csr",
    "Tensor row_starts, Tensor columns, Tensor column_starts, Tensor column_rows, Tensor by_column",
    ("CPU",),
    _linear,
    _input_grad,
    _weight_grad,
    _fake_linear,
    _fake_input_grad,
    _fake_weight_grad,
    _laid_out,
)
register(_KIND)
