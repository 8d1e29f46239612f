"""The index tables of block-sparse products: the blocks in each row and each column of the grid of blocks."""

from dataclasses import dataclass

import torch
from torch import Tensor

# Blocks of a row whose weight gradients are computed together, by the size of a block: they share the gradient of the
# output, and a tile of the GPU's matrix units has 128 or 256 rows.
GROUPS = {16: 8, 32: 4, 64: 2, 128: 2}


@dataclass(frozen=True)
class Tables:
    """Views of a plan, all int32; blocks are numbered row by row.

    Attributes:
        row_starts: the first block of each row; the last element is the number of blocks.
        columns: the column of each block.
        rows: the row of each block.
        column_starts: like `row_starts`, for blocks sorted by column.
        by_column: the blocks sorted by column.
        column_rows: the row of each block of `by_column`.
        groups: the first block of each group of neighbours in a row; the number of blocks for an unused group.
    """

    row_starts: Tensor
    columns: Tensor
    rows: Tensor
    column_starts: Tensor
    by_column: Tensor
    column_rows: Tensor
    groups: Tensor


def tables_of(plan: Tensor, *, blocks: int, grid: tuple[int, int], size: int) -> Tables:
    """Return the tables in a plan of `blocks` blocks of `size`, on a grid of (rows, columns)."""
    return Tables(*plan.split(_sizes(blocks, grid, size)))


def plan_of(rows: Tensor, columns: Tensor, *, grid: tuple[int, int], size: int) -> Tensor:
    """Return the plan of blocks at ``(rows, columns)`` of the grid, which are sorted by row, then by column.

    It is one tensor, whose size depends only on the number of blocks and on the grid. It is computed without reading
    any value on the host, so there is no synchronization, and a captured graph can read it.

    Example:
        >>> plan = plan_of(torch.tensor([0, 0, 1]), torch.tensor([0, 1, 1]), grid=(2, 2), size=16)
        >>> tables_of(plan, blocks=3, grid=(2, 2), size=16).row_starts
        tensor([0, 2, 3], dtype=torch.int32)
    """
    blocks, group = len(rows), GROUPS[size]
    by_column = columns.argsort(stable=True)
    row_starts, column_starts = starts_of(rows, grid[0]), starts_of(columns, grid[1])
    groups = (row_starts.diff() + group - 1) // group  # of each row
    ends = groups.cumsum(0)
    number = torch.arange(_sizes(blocks, grid, size)[-1], device=rows.device)
    row = torch.searchsorted(ends, number, right=True)
    inside = row < grid[0]
    row = row.clamp(max=grid[0] - 1)
    first = row_starts[row] + (number - (ends - groups)[row]) * group
    first = torch.where(inside, first, blocks)
    tables = [row_starts, columns, rows, column_starts, by_column, rows[by_column], first]
    return torch.cat([table.to(torch.int32) for table in tables])


def starts_of(indices: Tensor, number: int) -> Tensor:
    """Return the first entry of each of `number` rows once they are sorted, then the number of entries."""
    counts = torch.zeros(number + 1, dtype=torch.int64, device=indices.device)
    ones = torch.ones_like(indices, dtype=torch.int64)
    return counts.scatter_add_(0, indices.to(torch.int64) + 1, ones).cumsum(0)


def _sizes(blocks: int, grid: tuple[int, int], size: int) -> list[int]:
    rows, columns = grid
    return [rows + 1, blocks, blocks, columns + 1, blocks, blocks, blocks // GROUPS[size] + rows]
