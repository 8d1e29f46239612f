"""Observation 1: how dense a product of random Givens rotations is expected to be."""

from collections.abc import Iterator
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from orthosparse.checks import check_at_least, check_density


def expected_density(size: int, rotations: int) -> Tensor:
    """Return the expected densities after 0, 1, ..., `rotations` random rotations: float64 [rotations + 1].

    Each row starts with one non-zero and evolves by itself, so the law does not know how many rows there are: for a
    rows x cols matrix, `size` is its longer side, the size of the rotations. Costs O(rotations * size).

    Example:
        >>> expected_density(2, 2).tolist()  # the only pair there is fills the matrix
        [0.5, 1.0, 1.0]
    """
    size, rotations = check_at_least(size, 1, "size"), check_at_least(rotations, 0, "rotations")
    return torch.tensor(list(islice(_densities(size), rotations + 1)), dtype=torch.float64, device="cpu")


def expected_rotations(rows: int, cols: int, density: float) -> int:
    """Return the first number of rotations whose expected count of non-zeros rounds to `density` or more.

    Densities of a `rows` x `cols` matrix below that of the start need none.

    Example:
        >>> expected_rotations(1024, 1024, 0.0625)
        2191
    """
    rows, cols = check_at_least(rows, 1, "rows"), check_at_least(cols, 1, "cols")
    # An expected density of 1 is never reached: half an entry short of it is near enough for a whole number of entries.
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
