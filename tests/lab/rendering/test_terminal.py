import io

import pytest
from rich.console import Console

from orthosparse.lab.rendering.contents import plain_table
from orthosparse.lab.rendering.terminal import print_table

ROWS = [("a.very.long.name.of.a.layer", "1.234e-15"), ("fc", "0.5")]
TABLE = plain_table(("layer", "score"), ROWS, roles=["eoi", "base"], title="Scores")


def printed(width, table=TABLE):
    out = io.StringIO()
    print_table(table, Console(file=out, width=width))
    return out.getvalue()


def test_a_table_shows_every_cell_without_colours_off_a_terminal():
    text = printed(80)
    assert all(cell in text for row in [("Scores", "layer", "score"), *ROWS] for cell in row)
    assert "\x1b" not in text


def test_in_a_narrow_terminal_names_are_cut_and_numbers_are_not():
    text = printed(24)
    assert "1.234e-15" in text
    assert "a.very" in text
    assert "…" in text


@pytest.mark.parametrize("width", [40, 60, 80])
def test_names_that_a_reader_has_to_type_are_cut_last(width):
    rows = [("singular_values", "3240/3240", "Singular values of the Jacobian"), ("dynamic", "0/6", "Moving masks")]
    text = printed(width, plain_table(("item", "pairs", "title"), rows, text=(0, 2)))
    assert all(row[0] in text and row[1] in text for row in rows)
    assert max(map(len, text.splitlines())) <= width


@pytest.mark.parametrize("width", [24, 40, 79, 80, 100, 160])
def test_every_number_is_whole_and_beside_the_name_of_its_row_in_a_terminal_of_any_width(width):
    headings = ["layer", *(f"orthogonality of start {column}" for column in range(9)), "note"]
    rows = [[f"fc{row}", *(f"{row}.{column}e-07" for column in range(9)), "what else to know"] for row in range(3)]
    table = plain_table(headings, rows, text=(0, 10), title="Scores")
    lines = printed(width, table).splitlines()
    assert max(map(len, lines)) <= width
    for row in rows:
        words = [word for line in lines if line.split()[:1] == row[:1] for word in line.split()]
        assert all(number in words for number in row[1:-1])
    assert sum("Scores" in line for line in lines) == 1
