"""How matrices lie in a tensor: one for each part that a group and a fused part have in common."""

from collections.abc import Sequence
from itertools import accumulate, pairwise

import torch


def row_ranges(groups: int, rows: int, parts: Sequence[int]) -> list[tuple[int, int, int]]:
    """Return (group, first row, row after the last) of every matrix, where each group has `rows` outputs.

    Parts lie one after the other over all outputs. A part in several groups has a matrix in each, as it has inputs of
    its own there; together they are orthogonal exactly when each of them is.

    Example:
        >>> row_ranges(1, 6, (4, 2)), row_ranges(2, 3, (4, 2))
        ([(0, 0, 4), (0, 4, 6)], [(0, 0, 3), (1, 0, 1), (1, 1, 3)])
    """
    ends = {*accumulate(parts), *range(rows, groups * rows + 1, rows or 1)}
    return [(first // rows, first % rows, first % rows + last - first) for first, last in pairwise(sorted({0, *ends}))]


def matrix_views(stack: torch.Tensor, parts: Sequence[int]) -> list[torch.Tensor]:
    """Return views of ``[groups, out, in, taps]``, one for each matrix; those of one shape in one where strides allow.

    Example:
        >>> [part.shape[:2] for part in matrix_views(torch.zeros(1, 6, 3, 1), (2, 2, 2))]
        [torch.Size([3, 2])]
    """
    groups, rows = stack.shape[:2]
    ranges = row_ranges(groups, rows, parts)
    if len(ranges) == groups:
        return [stack]
    if groups == 1 and len(set(parts)) == 1:
        return [stack[0].unflatten(0, (len(parts), parts[0]))]
    return [stack[group : group + 1, first:last] for group, first, last in ranges]
