"""Block-sparse products with `torch.bmm`: on the CPU, in float64, and without Triton."""

import torch
from torch import Tensor

from orthosparse.operators.block_plan import tables_of
from orthosparse.operators.registration import without_autocast


@without_autocast
def product(x: Tensor, values: Tensor, bias: Tensor | None, plan: Tensor, *, features: int, transposed: bool) -> Tensor:
    """Return ``x @ weight.T + bias``, or ``x @ weight`` if `transposed`, with `features` columns; `x` is a matrix."""
    blocks, size, _ = values.shape
    sides = features // size, x.shape[1] // size
    tables = tables_of(plan, blocks=blocks, grid=sides[::-1] if transposed else sides, size=size)
    read, written = (tables.rows, tables.columns) if transposed else (tables.columns, tables.rows)
    products = torch.bmm(_by_strip(x, size)[read], values if transposed else values.mT)
    y = torch.zeros(sides[0], len(x), size, dtype=x.dtype, device=x.device).index_add_(0, written, products)
    y = y.transpose(0, 1).reshape(len(x), features)
    return y if bias is None else y.add_(bias)


@without_autocast
def weight_grad(grad: Tensor, x: Tensor, plan: Tensor, *, blocks: int, size: int) -> Tensor:
    """Return the active blocks of ``grad.T @ x``, both matrices."""
    tables = tables_of(plan, blocks=blocks, grid=(grad.shape[1] // size, x.shape[1] // size), size=size)
    return torch.bmm(_by_strip(grad, size)[tables.rows].mT, _by_strip(x, size)[tables.columns])


def _by_strip(x: Tensor, size: int) -> Tensor:
    """``[tokens, features]`` as ``[strips, tokens, size]``."""
    return x.reshape(len(x), x.shape[1] // size, size).transpose(0, 1)
