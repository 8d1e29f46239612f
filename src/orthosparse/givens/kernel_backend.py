"""The Givens sampler's compiled kernel, where it was built."""

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from orthosparse.givens.task import Task

Array = npt.NDArray[Any]

_NAME = "orthosparse.givens._kernel"


@cache
def available() -> bool:
    """Say whether the kernel was built."""
    return find_spec(_NAME) is not None


def fill(task: Task, counts: Sequence[int], seed: int, values: Tensor, mask: Tensor, threads: int) -> None:
    """Write one matrix per count into `values` and its active entries into `mask`, both [batch, rows, cols]."""
    import_module(_NAME).fill(*task, seed, np.array(counts, dtype=np.int64), values.numpy(), mask.numpy(), threads)


def csr(task: Task, count: int, seed: int, threads: int) -> tuple[Array, Array, Array]:
    """Return (row starts, columns, float64 values) of the wanted rows; no array is rows x cols."""
    starts, cols, values = import_module(_NAME).csr(*task, seed, count, threads)
    return np.frombuffer(starts, np.int64), np.frombuffer(cols, np.int64), np.frombuffer(values, np.float64)
