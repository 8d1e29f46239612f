"""Permute the rows and columns of an orthogonal matrix so that its active entries overlap a mask as much as possible.

A permutation of rows or columns keeps a matrix orthogonal. The best pair of them is a quadratic assignment problem, so
they are optimized alternately: both are sorted by degree first, then columns, rows, columns and rows follow by linear
assignment, each optimal for the current order of the other. Large matrices are assigned in blocks of columns (rows) of
similar degree.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from orthosparse.masks import top_k

Bits = npt.NDArray[np.bool_]
Order = npt.NDArray[np.intp]

BLOCK = 256  # columns (rows) assigned at once: all 1024 of a matrix take five times as long for 0.01 more overlap
STRIP = 64  # rows permuted at once: they stay in the cache, where a whole copy would need new memory
ROUNDS = 2  # of columns and rows; a third round gains less than 0.01
# Entries up to which there are all rounds, or one round; larger matrices are only sorted by degree.
# `benchmarks/aligned.py` prints what each costs and gains.
ALL_ROUNDS, ONE_ROUND = 2**20, 2**24


def goal_of(align: torch.Tensor, count: int) -> torch.Tensor:
    """Return the mask to align to, contiguous on the CPU: `align` itself, or the mask of its `count` largest scores."""
    goal = align.detach() if align.dtype == torch.bool else top_k({"align": align}, count)["align"]
    return goal.cpu().contiguous()


def aligned_order(active: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return rows and columns such that ``active[rows][:, cols]`` overlaps `mask`, of the same shape; on the CPU.

    There is no randomness and no rounding: the same matrices give the same order on every machine.

    Example:
        >>> active = torch.tensor([[True, False, False], [False, True, True]])
        >>> rows, cols = aligned_order(active, torch.tensor([[True, False, True], [False, True, False]]))
        >>> active[rows][:, cols]
        tensor([[ True, False,  True],
                [False,  True, False]])
    """
    support, goal = active.numpy(), mask.numpy()
    rows, cols, at_rows, at_cols = *_by_degree(support), *_by_degree(goal)
    goal = _permuted(goal, at_rows, at_cols)
    for _ in range(ROUNDS if goal.size <= ALL_ROUNDS else int(goal.size <= ONE_ROUND)):
        cols = cols[_assigned(_permuted(support, rows, cols).T, goal.T)]
        rows = rows[_assigned(_permuted(support, rows, cols), goal)]
    return torch.from_numpy(rows[np.argsort(at_rows)]), torch.from_numpy(cols[np.argsort(at_cols)])


def align(values: torch.Tensor, active: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a matrix and its active entries, with rows and columns permuted to overlap `mask` as much as possible."""
    rows, cols = aligned_order(active, mask)
    return permute(values, rows, cols), permute(active, rows, cols)


def permute(matrix: torch.Tensor, rows: torch.Tensor, cols: torch.Tensor) -> torch.Tensor:
    """Return ``matrix[rows][:, cols]``, three times faster than torch."""
    if matrix.dtype == torch.bfloat16:  # numpy has no bfloat16
        return permute(matrix.view(torch.int16), rows, cols).view(torch.bfloat16)
    return torch.from_numpy(_permuted(matrix.numpy(), rows.numpy(), cols.numpy()))


def _permuted(matrix: npt.NDArray[Any], rows: Order, cols: Order) -> npt.NDArray[Any]:
    out = np.empty((len(rows), len(cols)), matrix.dtype)
    for first in range(0, len(rows), STRIP):
        strip = slice(first, first + STRIP)
        np.take(matrix[rows[strip]], cols, axis=1, out=out[strip], mode="clip")  # "clip" needs no second buffer
    return out


def _by_degree(matrix: Bits) -> tuple[Order, Order]:
    """Return the orders of rows and of columns by decreasing number of entries."""
    rows, cols = (np.argsort(-np.count_nonzero(matrix, axis=side), kind="stable") for side in (1, 0))
    return rows, cols


def _assigned(vectors: Bits, goals: Bits) -> Order:
    """Return the order in which the rows `vectors` overlap the rows `goals` most, in blocks of neighbours."""
    from scipy.optimize import linear_sum_assignment  # slow to import, and only alignment needs it

    order = []
    for first in range(0, len(vectors), BLOCK):
        block = slice(first, first + BLOCK)
        # Sums of fewer than 2^24 ones: exact in float32, in any order of addition.
        overlaps = vectors[block].astype(np.float32) @ goals[block].astype(np.float32).T
        chosen, assigned = linear_sum_assignment(overlaps, maximize=True)
        order.append(first + chosen[np.argsort(assigned)])
    return np.concatenate(order)
