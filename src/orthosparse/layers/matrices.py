"""How matrices lie in a tensor: one for each part that a group and a fused part have in common, in each expert."""

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


def grouped_views(stack: torch.Tensor, parts: Sequence[int]) -> list[torch.Tensor]:
    """Return views [how_many, 1, out, in, taps] of ``[groups, out, in, taps]``, where parts run over all groups.

    Example:
        >>> [part.shape[:3] for part in grouped_views(torch.zeros(2, 3, 3, 1), (4, 2))]
        [torch.Size([1, 1, 3]), torch.Size([1, 1, 1]), torch.Size([1, 1, 2])]
    """
    ranges = row_ranges(stack.shape[0], stack.shape[1], parts)
    if len(ranges) == len(stack):
        return [stack.unsqueeze(1)]
    return [stack[group : group + 1, None, first:last] for group, first, last in ranges]


def fused_views(stack: torch.Tensor, parts: Sequence[int], repeats: int) -> list[torch.Tensor]:
    """Return views [how_many, repeats, rows, in, taps] of ``[experts, out, in, taps]``; each expert has all parts.

    The rows of a part are `repeats` pieces, which alternate with those of the others. Parts of one size come as one
    stack where strides allow it.

    Example:
        >>> [part.shape[:3] for part in fused_views(torch.zeros(1, 8, 3, 1), (4, 2, 2), 2)]
        [torch.Size([1, 2, 2]), torch.Size([1, 2, 1]), torch.Size([1, 2, 1])]
    """
    if len(stack) == repeats == 1 and len(set(parts)) == 1:
        return [stack[0].unflatten(0, (len(parts), 1, parts[0]))]
    return list(stack.unflatten(1, (repeats, -1)).split([part // repeats for part in parts], dim=2))
