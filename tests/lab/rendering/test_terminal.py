import io

from rich.console import Console

from orthosparse.lab.rendering import Table, print_table

TABLE = Table(("layer", "score"), [("a.very.long.name.of.a.layer", "1.234e-15"), ("fc", "0.5")], roles=["eoi", "base"])


def printed(width):
    out = io.StringIO()
    print_table(TABLE, "Scores", Console(file=out, width=width))
    return out.getvalue()


def test_a_table_shows_every_cell_without_colours_off_a_terminal():
    text = printed(80)
    assert all(cell in text for row in [TABLE.headings, *TABLE.rows] for cell in row)
    assert "\x1b" not in text


def test_in_a_narrow_terminal_names_are_cut_and_numbers_are_not():
    text = printed(24)
    assert "1.234e-15" in text
    assert "a.very" in text
    assert "…" in text
