"""The tables of a plan against plain loops."""

import hypothesis
import hypothesis.strategies as st
import torch

from orthosparse.operators.block_plan import GROUPS, plan_of, starts_of, tables_of

SIZES = st.sampled_from(sorted(GROUPS))


@hypothesis.given(
    grid=st.tuples(st.integers(1, 7), st.integers(1, 7)), size=SIZES, density=st.floats(0, 1), seed=st.integers(0, 99)
)
@hypothesis.settings(max_examples=60)
def test_every_block_is_found_by_row_by_column_and_in_one_group(grid, size, density, seed):
    active = torch.rand(grid, generator=torch.Generator().manual_seed(seed)) < density
    rows, columns = active.nonzero(as_tuple=True)
    blocks = len(rows)
    tables = tables_of(plan_of(rows, columns, grid=grid, size=size), blocks=blocks, grid=grid, size=size)
    by_row, by_column, grouped = [], [], []
    for row in range(grid[0]):
        found = range(int(tables.row_starts[row]), int(tables.row_starts[row + 1]))
        by_row += [(row, int(tables.columns[block])) for block in found]
    for column in range(grid[1]):
        for entry in range(int(tables.column_starts[column]), int(tables.column_starts[column + 1])):
            block = int(tables.by_column[entry])
            assert int(tables.rows[block]) == int(tables.column_rows[entry])
            by_column.append((int(tables.rows[block]), column))
    for first in tables.groups.tolist():
        if first < blocks:
            end = min(first + GROUPS[size], int(tables.row_starts[int(tables.rows[first]) + 1]))
            grouped += range(first, end)
            assert len({int(tables.rows[block]) for block in range(first, end)}) == 1
    expected = list(zip(rows.tolist(), columns.tolist(), strict=True))
    assert by_row == expected
    assert sorted(by_column) == expected
    assert grouped == list(range(blocks)), "every block once, in order: neighbours share what they read"


def test_the_size_of_a_plan_does_not_depend_on_where_blocks_lie():
    sizes = set()
    for columns in ([0, 1, 2, 3], [0, 0, 0, 0]):
        rows = torch.tensor([0, 0, 0, 0] if len(set(columns)) > 1 else [0, 1, 2, 3])
        sizes.add(len(plan_of(rows, torch.tensor(columns), grid=(4, 4), size=64)))
    assert len(sizes) == 1


def test_starts_count_the_entries_of_each_row():
    assert starts_of(torch.tensor([0, 0, 2]), 4).tolist() == [0, 2, 2, 3, 3]
