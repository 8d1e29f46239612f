"""CSR products with the compiled kernel, on as many threads as torch uses.

A matrix is given in CSR format: ``values`` [1, entries], ``starts`` (of rows) and ``others`` (column indices). Samples
are stored features first. Results do not depend on the number of threads.
"""

import math
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

_NAME = "orthosparse.operators._kernel"


@cache
def is_built() -> bool:
    """Whether the kernel was compiled when the package was built."""
    return find_spec(_NAME) is not None


def instruction_sets() -> int:
    """Return how many sets of vector instructions the kernel can use on this machine; the last is the widest."""
    number: int = _kernel()[0].instruction_sets()
    return number


def product(
    x: Tensor,
    values: Tensor,
    bias: Tensor | None,
    starts: Tensor,
    others: Tensor,
    order: Tensor | None = None,
    *,
    table: Tensor | None = None,
    length: int | None = None,
    instructions: int | None = None,
) -> Tensor:
    """Return ``matrix @ x + bias``, contiguous.

    Args:
        x: ``[columns of the matrix, batch]``, contiguous.
        order: entry k of the matrix is ``values[0, order[k]]``; None: ``values[0, k]``.
        table: row j of the second factor is the window ``x.flatten()[table[j]:][:length]``, which lies inside `x`;
            int64. None: `x` is a matrix.
        length: length of these windows.
        instructions: index of the set of vector instructions to use; None: the widest.
    """
    y = x.new_empty(len(starts) - 1, x.shape[1] if length is None else length)
    bias = None if bias is None else bias.contiguous()
    _run(False, y, x, values.contiguous(), starts, others, order, bias, table, instructions)
    return y


def arrange(
    x: Tensor,
    *,
    step: Sequence[int],
    padding: Sequence[int],
    rooms: Sequence[int],
    pitch: int | None = None,
    before: int = 0,
    after: int = 0,
) -> Tensor:
    """Return images padded with zeros and sorted by remainders of a step: ``[channels, *step, batch, *rooms]``, flat.

    Args:
        x: ``[batch, channels, *spatial]``, with at most three spatial dimensions and any strides.
        rooms: ``ceil((side + 2 * padding) / step)`` or less: pixel i of remainder r is ``step * i + r - padding`` of x.
        pitch: distance between the planes ``[batch, *rooms]``, with zeros in the gap; None: no gap.
        before: number of zeros before the planes.
        after: number of zeros after the planes.
    """
    pitch = len(x) * math.prod(rooms) if pitch is None else pitch
    number = x.shape[1] * math.prod(step) * pitch
    to = x.new_empty(before + number + after)
    to[:before], to[before + number :] = 0, 0
    strides, missing = x.stride(), (0,) * (5 - x.dim())
    ones = tuple(1 for _ in missing)
    numbers = (*x.shape[:2], pitch, *ones, *x.shape[2:], *strides[:2], *missing, *strides[2:])
    numbers += (*ones, *step, *missing, *padding, *ones, *rooms)
    _kernel()[0].arrange(x.dtype == torch.float64, to[before:].data_ptr(), x.data_ptr(), numbers)
    return to


def sampled(
    grad: Tensor,
    x: Tensor,
    starts: Tensor,
    others: Tensor,
    table: Tensor | None = None,
    *,
    instructions: int | None = None,
) -> Tensor:
    """Return the active entries of ``grad @ x.T``, [1, entries]; both matrices are contiguous.

    Args:
        table: row j is the window of `x` that begins at ``table[j]``, as in `product`; None: `x` is a matrix.
    """
    values = x.new_zeros(1, len(others))  # the result if there are no samples
    _run(True, grad, x, values, starts, others, None, None, table, instructions)
    return values


def _run(
    sampled: bool,
    y: Tensor,
    x: Tensor,
    values: Tensor,
    starts: Tensor,
    others: Tensor,
    order: Tensor | None,
    bias: Tensor | None,
    table: Tensor | None,
    instructions: int | None,
) -> None:
    if y.dtype != values.dtype or x.dtype != values.dtype or (bias is not None and bias.dtype != values.dtype):
        raise TypeError(f"x: expected the type of the weight and its bias, {values.dtype}; got {x.dtype}")
    if values.numel() != len(others):
        raise ValueError(f"values: expected {len(others)}, one for each active entry; got {values.numel()}")
    if bias is not None and bias.numel() != len(y):
        raise ValueError(f"bias: expected {len(y)}, one for each output; got {bias.numel()}")
    kernel, widest = _kernel()
    kernel.run(
        x.dtype == torch.float64,
        sampled,
        *[0 if each is None else each.data_ptr() for each in (y, x, values, starts, others, order, bias, table)],
        *y.shape,
        torch.get_num_threads(),
        widest if instructions is None else instructions,
    )


@cache
def _kernel() -> tuple[Any, int]:
    """Return the compiled module, and the index of the widest instructions.

    Raises:
        RuntimeError: it was not built.
    """
    if not is_built():
        raise RuntimeError(
            "expected the compiled kernel of sparse products, and the package was built without a compiler "
            "(orthosparse.expand(model) turns compact layers into masked ones)"
        )
    module = import_module(_NAME)
    return module, module.instruction_sets() - 1
