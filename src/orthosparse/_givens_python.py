"""The Givens sampler in plain Python: values by BLAS rotations, dense or as compressed rows."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from orthosparse._givens_plan import BITS, LISTS, Plan, plan
from orthosparse._givens_task import ROTATIONS, Task

Array = npt.NDArray[Any]

_ROW_BLOCK = 1024
_SPARSE = 1 / 32  # below this density, rows are listed one by one instead of as bits


def fill(task: Task, counts: Sequence[int], seed: int, values: Array, mask: Array, threads: int) -> None:
    """Write one matrix per count into `values` and its active entries into `mask`, both [batch, rows, cols]."""
    del threads  # one
    left, right = task.work_cols
    for member, count in enumerate(counts):
        made = plan(task, count, seed, member, BITS)
        # The work is [columns, rows], as the transposes of a wide result are.
        into = values[member] if task.tall else values[member].T
        for first, lanes in _rotated(task, made):
            into[:, first : first + lanes.shape[1]] = lanes[left:right]
        active = _unpacked(made.columns[left:right], task.height)[:, slice(*task.work_rows)]
        mask[member] = active if task.tall else active.T


def csr(task: Task, count: int, seed: int, threads: int) -> tuple[Array, Array, Array]:
    """Return (row starts, columns, float64 values) of the wanted rows; no array is rows x cols."""
    del threads  # one
    if count < _SPARSE * task.height * task.width and task.stop != ROTATIONS:
        rows, cols, values = _sparse_entries(task, plan(task, count, seed, 0, LISTS))
    else:
        rows, cols, values = _dense_entries(task, plan(task, count, seed, 0, BITS))
    if task.tall:
        rows, cols = cols, rows
    rows = rows - task.first
    order = np.lexsort((cols, rows))
    starts = np.concatenate(([0], np.cumsum(np.bincount(rows, minlength=task.shape[0])))).astype(np.int64)
    return starts, cols[order], values[order]


def _rotated(task: Task, made: Plan) -> Iterator[tuple[int, Array]]:
    """Yield the wanted rows of the rotated matrix block by block: where in them, and the block [width, rows].

    Blocks begin at multiples of their size whatever rows are wanted: BLAS may round differently near an array's end.
    """
    from scipy.linalg.blas import drot  # slow to import, and the kernel does without

    low, high = task.work_rows
    for block in range(low // _ROW_BLOCK * _ROW_BLOCK, high, _ROW_BLOCK):
        rows = np.arange(block, min(block + _ROW_BLOCK, task.height))
        work = np.zeros((task.width, len(rows)))
        work[np.array(made.start)[rows], rows - block] = np.array(made.signs)[rows]
        lanes = list(work)
        for i, j, cosine, sine in made.rotations:
            drot(lanes[i], lanes[j], cosine, sine, overwrite_x=1, overwrite_y=1)
        first, last = max(block, low), min(block + _ROW_BLOCK, high)
        yield first - low, work[:, first - block : last - block]


def _unpacked(columns: list[int], height: int) -> Array:
    """Return integer supports as booleans [columns, height]."""
    width = -(-height // 8)
    packed = np.frombuffer(b"".join(column.to_bytes(width, "little") for column in columns), dtype=np.uint8)
    return np.unpackbits(packed.reshape(len(columns), width), axis=1, count=height, bitorder="little").view(bool)


def _dense_entries(task: Task, made: Plan) -> tuple[Array, Array, Array]:
    """Return (rows, columns, values) of the active entries, one block of rows at a time."""
    (low, high), (left, right) = task.work_rows, task.work_cols
    active = _unpacked(made.columns[left:right], task.height)[:, low:high]
    parts = []
    for first, lanes in _rotated(task, made):
        cols, rows = np.nonzero(active[:, first : first + lanes.shape[1]])
        parts.append((rows + first + low, cols + left, lanes[left:right][cols, rows]))
    return _joined(parts)


def _sparse_entries(task: Task, made: Plan) -> tuple[Array, Array, Array]:
    """Return (rows, columns, values) of the active entries, with work and memory like their number."""
    (low, high), (left, right) = task.work_rows, task.work_cols
    columns: list[dict[int, float]] = [{} for _ in range(task.width)]
    for row in range(low, high):
        columns[made.start[row]][row] = made.signs[row]
    for i, j, cosine, sine in made.rotations:
        a, b = columns[i], columns[j]
        for row in a.keys() | b.keys():
            x, y = a.get(row, 0.0), b.get(row, 0.0)
            a[row], b[row] = cosine * x + sine * y, cosine * y - sine * x
    parts = []
    for column in range(left, right):
        rows = np.array([row for row in made.columns[column] if low <= row < high], dtype=np.int64)
        values = np.array([columns[column].get(int(row), 0.0) for row in rows])
        parts.append((rows, np.full(len(rows), column), values))
    return _joined(parts)


def _joined(parts: list[tuple[Array, Array, Array]]) -> tuple[Array, Array, Array]:
    empty = np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0)
    rows, cols, values = (np.concatenate(arrays) for arrays in zip(empty, *parts, strict=True))
    return rows, cols, values
