import io

from rich.console import Console

from orthosparse.lab.rendering.contents import plain_table
from orthosparse.lab.rendering.terminal import print_table

ROWS = [("a.very.long.name.of.a.layer", "1.234e-15"), ("fc", "0.5")]
TABLE = plain_table(("layer", "score"), ROWS, roles=["eoi", "base"], title="Scores")


def printed(width):
    out = io.StringIO()
    print_table(TABLE, Console(file=out, width=width))
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
