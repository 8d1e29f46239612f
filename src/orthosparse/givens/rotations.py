"""Products of a given number of random rotations: samples, their non-zeros, and their expected density."""

from collections.abc import Iterator
from itertools import islice
from typing import Unpack

import numpy as np
import torch
from torch import Tensor

from orthosparse.aliases import BackendName
from orthosparse.checks import check_at_least, check_density
from orthosparse.givens.sampling import Law, drawn
from orthosparse.givens.task import ROTATIONS, Task, make_task
from orthosparse.randomness import draw_seed


def rotate(
    shape: tuple[int, int],
    rotations: int,
    *,
    generator: torch.Generator | None = None,
    dtype: torch.dtype = torch.float64,
    threads: int = 1,
    backend: BackendName | str = "auto",
    **law: Unpack[Law],
) -> tuple[Tensor, Tensor]:
    """Return the product of the start and exactly `rotations` rotations, and the mask of its non-zeros.

    `shape`, `generator`, `dtype`, `threads`, `backend` and the other keywords, `law`, are those of `sample`, except for
    `stop`.

    Example:
        >>> values, mask = rotate((4, 4), 1)
        >>> int(mask.sum())  # two columns of one entry each became two columns of two
        6
    """
    task = _of_rotations(shape, law)
    counts = [check_at_least(rotations, 0, "rotations")]
    values, mask = drawn(task, counts, generator=generator, dtype=dtype, threads=threads, backend=backend)
    return values[0], mask[0]


def counts_after(
    shape: tuple[int, int], rotations: int, *, generator: torch.Generator | None = None, **law: Unpack[Law]
) -> Tensor:
    """Return the number of non-zeros of one draw after 0, 1, ..., `rotations` rotations: int64 [rotations + 1].

    `shape`, `generator` and the other keywords, `law`, are those of `sample`, except for `stop`.

    Example:
        >>> counts_after((4, 4), 1).tolist()
        [4, 6]
    """
    task = _of_rotations(shape, law)
    check_at_least(rotations, 0, "rotations")
    from orthosparse.givens import plan  # not needed by the kernel

    return torch.tensor(plan.counts_after(task, rotations, draw_seed(generator)), device="cpu")


def expected_density(size: int, rotations: int) -> Tensor:
    """Return the expected densities after 0, 1, ..., `rotations` random rotations: float64 [rotations + 1].

    Each row starts with one non-zero and evolves independently of the number of rows, so the density depends only on
    `size`, the longer side of the matrix. Costs O(rotations * size).

    Example:
        >>> expected_density(2, 2).tolist()  # the only pair there is fills the matrix
        [0.5, 1.0, 1.0]
    """
    size, rotations = check_at_least(size, 1, "size"), check_at_least(rotations, 0, "rotations")
    return torch.tensor(list(islice(_densities(size), rotations + 1)), dtype=torch.float64, device="cpu")


def expected_rotations(rows: int, cols: int, density: float) -> int:
    """Return the smallest number of rotations after which a `rows` x `cols` matrix is expected to have `density`.

    The expected number of non-zeros is rounded. A density that the start already has takes no rotations.

    Example:
        >>> expected_rotations(1024, 1024, 0.0625)
        2191
    """
    rows, cols = check_at_least(rows, 1, "rows"), check_at_least(cols, 1, "cols")
    # An expected density of 1 is never reached: half an entry short of it rounds to a whole number of entries.
    enough = check_density(density) - 0.5 / (rows * cols)
    return next(step for step, expected in enumerate(_densities(max(rows, cols))) if expected >= enough)


def _densities(size: int) -> Iterator[float]:
    """Yield the expected density after 0, 1, 2, ... rotations of `size` columns."""
    k = np.arange(size + 1, dtype=np.float64)
    pairs = max(size * (size - 1) / 2, 1.0)
    grow = k * (size - k) / pairs  # exactly one of the two entries of this row is non-zero
    # p[k]: the probability that a row has k non-zeros. (1 - grow) is the paper's (C(k, 2) + C(n - k, 2)) / C(n, 2).
    p = np.zeros(size + 1)
    p[1] = 1.0
    reach = 1  # after t rotations, no row has more than t + 1
    while True:
        yield float(k[1 : reach + 1] @ p[1 : reach + 1]) / size
        reach = min(reach + 1, size)
        gained = p[:reach] * grow[:reach]
        p[: reach + 1] *= 1.0 - grow[: reach + 1]
        p[1 : reach + 1] += gained


def _of_rotations(shape: tuple[int, int], law: Law) -> Task:
    if "stop" in law:
        raise TypeError("stop: the number of rotations is given, there is no stopping rule")
    return make_task(shape, **law)._replace(stop=ROTATIONS)
