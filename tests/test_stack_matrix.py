"""The page of the stack is that of the tests' marks."""

import stack_matrix


def test_the_page_shows_the_cells_that_tests_are_marked_for():
    page = stack_matrix.PAGE.read_text()
    assert page == stack_matrix.with_table(page), "run python tests/stack_matrix.py"


def test_every_mark_is_a_cell_of_the_table_and_every_cell_has_one():
    found = {(row, column) for row, column, _, _ in stack_matrix.marks()}
    assert found == {(row, column) for row in stack_matrix.ROWS for column in stack_matrix.COLUMNS}
