"""The Givens sampler in plain Python: values from BLAS rotations, dense or in CSR format."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from orthosparse.givens.plan import BITS, LISTS, Plan, plan
from orthosparse.givens.task import ROTATIONS, Task

Array = npt.NDArray[Any]

_ROW_BLOCK = 1024
_SPARSE = 1 / 32  # below this density, rows are listed one by one instead of as bits


def fill(task: Task, counts: Sequence[int], seed: int, values: Tensor, mask: Tensor) -> None:
    """Write one matrix per count into `values` and its active entries into `mask`, both [batch, rows, cols]."""
    left, right = task.work_cols
    for member, count in enumerate(counts):
        made = plan(task, count, seed, member, BITS)
        for first, lanes in _rotated(task, made):
            # Cast first: torch transposes by blocks if the dtypes agree. Add 0: rotated zeros may be -0.
            block = torch.from_numpy(lanes[left:right]).to(values.dtype).add_(0.0)
            last = first + lanes.shape[1]
            if task.tall:
                values[member, :, first:last].copy_(block)
            else:
                values[member, first:last].copy_(block.T)
        mask[member].copy_(torch.from_numpy(active_entries(task, made.columns[left:right])))


def csr(task: Task, count: int, seed: int) -> tuple[Array, Array, Array]:
    """Return (row starts, columns, float64 values) of the wanted rows, without an array of rows x cols."""
    sparse = task.stop != ROTATIONS and count < _SPARSE * task.height * task.width
    rows, cols, values = _entries(task, plan(task, count, seed, 0, LISTS if sparse else BITS))
    if task.tall:
        rows, cols = cols, rows
    rows -= task.first
    order = np.lexsort((cols, rows))
    starts = np.zeros(task.shape[0] + 1, dtype=np.int64)
    np.cumsum(np.bincount(rows, minlength=task.shape[0]), out=starts[1:])
    return starts, cols[order], values[order]


def _rotated(task: Task, made: Plan) -> Iterator[tuple[int, Array]]:
    """Yield the wanted rows of the rotated matrix block by block: the first row, and the block [width, rows].

    Blocks begin at multiples of their size for any wanted rows: BLAS may round differently near an array's end.
    """
    from scipy.linalg.blas import drot  # slow to import, and not needed by the kernel

    low, high = task.work_rows
    for block in range(low // _ROW_BLOCK * _ROW_BLOCK, high, _ROW_BLOCK):
        rows = np.arange(block, min(block + _ROW_BLOCK, task.height))
        work = np.zeros((task.width, len(rows)))
        work[np.array(made.start)[rows], rows - block] = np.array(made.signs)[rows]
        lanes, size = list(work), len(rows)
        for i, j, cosine, sine in zip(
            *made.rotations, strict=True
        ):  # by position: twice as quick as overwrite_x=1, overwrite_y=1
            drot(lanes[i], lanes[j], cosine, sine, size, 0, 1, 0, 1, 1, 1)
        first, last = max(block, low), min(block + _ROW_BLOCK, high)
        yield first - low, work[:, first - block : last - block]


def active_entries(task: Task, columns: list[int]) -> Array:
    """Return integer supports as booleans, in the shape of the result."""
    size = -(-task.height // 8)
    packed = np.frombuffer(b"".join([column.to_bytes(size, "little") for column in columns]), dtype=np.uint8)
    packed = packed.reshape(len(columns), size)
    if task.tall:
        return np.unpackbits(packed, axis=1, count=task.height, bitorder="little").view(bool)
    eights = np.ascontiguousarray(packed.T)[:, None, :]  # bytes of eight rows, then columns
    bits = 1 << np.arange(8, dtype=np.uint8)[:, None]
    active: Array = (eights & bits != 0).reshape(8 * size, len(columns))
    return active[slice(*task.work_rows)]


def _entries(task: Task, made: Plan) -> tuple[Array, Array, Array]:
    """Return (rows, columns, values) of the active entries, in time and memory proportional to their number."""
    columns: list[dict[int, float]] = [{} for _ in range(task.width)]
    for row in range(*task.work_rows):
        columns[made.start[row]][row] = made.signs[row]
    for i, j, cosine, sine in zip(*made.rotations, strict=True):
        a, b = columns[i], columns[j]
        for row in a.keys() | b.keys():
            x, y = a.get(row, 0.0), b.get(row, 0.0)
            a[row], b[row] = cosine * x + sine * y, cosine * y - sine * x
    for row, column in made.extra:
        if row in range(*task.work_rows):
            columns[column][row] = 0.0
    wanted = columns[slice(*task.work_cols)]
    rows = np.array([row for column in wanted for row in column], dtype=np.int64)
    values = np.array([value for column in wanted for value in column.values()], dtype=np.float64)
    cols = np.repeat(np.arange(*task.work_cols), [len(column) for column in wanted])
    return rows, cols, values
