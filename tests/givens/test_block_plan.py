import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from orthosparse.givens.block_plan import plan_blocks
from orthosparse.givens.plan import BITS, plan
from orthosparse.givens.task import make_task


@st.composite
def questions(draw):
    height = draw(st.integers(1, 12))
    width = draw(st.integers(height, 40))
    return height, width, draw(st.integers(height, height * width)), draw(st.integers(0, 2**32))


@given(questions(), st.sampled_from(["identity", "permuted"]))
def test_no_column_is_empty_that_the_count_has_a_block_for(question, start):
    height, width, count, seed = question
    made = plan_blocks(make_task((height, width), start=start), count, seed)
    assert int(made.active.sum()) == count
    assert int(made.active.any(1).sum()) == min(count, width)
    assert made.active.any(0).all()


@given(questions(), st.sampled_from(["exact", "closest", "first"]))
def test_the_rotations_fill_blocks_that_are_active(question, stop):
    """Played back on sets of rows: the union of two columns for both of them."""
    height, width, count, seed = question
    made = plan_blocks(make_task((height, width), stop=stop), count, seed)
    rows = [set() for _ in range(width)]
    for row, column in enumerate(made.start):
        rows[column].add(row)
    for i, j in made.pairs:
        rows[i] = rows[j] = rows[i] | rows[j]
    found = torch.tensor([[row in column for row in range(height)] for column in rows])
    active = torch.from_numpy(made.active)
    assert not (found & ~active).any()
    if stop != "exact":
        assert torch.equal(found, active)


@pytest.mark.parametrize("count", [6, 13, 20, 36])
def test_square_supports_are_those_of_the_sampler_on_the_grid(count):
    columns = plan(make_task((6, 6)), count, 3, 0, BITS).columns
    expected = [[bool(column >> row & 1) for row in range(6)] for column in columns]
    assert plan_blocks(make_task((6, 6)), count, 3).active.tolist() == expected


def test_rows_take_turns_at_empty_columns():
    """Of 4 x 16, as many blocks as columns: four in every row."""
    made = plan_blocks(make_task((4, 16)), 16, 0)
    assert made.active.sum(0).tolist() == [4, 4, 4, 4]
    assert made.active.sum(1).tolist() == [1] * 16
