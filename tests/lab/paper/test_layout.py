"""Tables of items as text."""

from orthosparse.lab.paper._layout import text_table
from orthosparse.lab.paper._tables import Cell, Column, Line, Table

CELLS = ((Cell((89.0, 0.5), (90.0, 0.1), 3, "a note", our_mark="column", difference=1.0, error=0.2),), (Cell(None),))
TABLE = Table("T", ("init",), (Column("k", "net", "Net"),), (Line("a", ("A",)), Line("b", ("B",))), CELLS)


def test_a_compared_column_is_three_columns_of_one_group():
    table = text_table(TABLE)
    assert [str(column) for column in table.columns] == ["init", "net paper", "net ours", "net difference"]
    assert [cell.text for cell in table.rows[0].cells] == ["A", "89.00(0.50)", "90.00(0.10) n=3", "+1.00 ± 0.20 ‡"]
    ours = table.rows[0].cells[2]
    assert (ours.mark, ours.note, ours.kind) == ("column", "a note", "ours")
    assert [cell.text for cell in table.rows[1].cells] == ["B", "–", "not measured", ""]


def test_a_cell_whose_runs_all_diverged_says_so():
    lost = (Cell((89.0, 0.5), rows=({}, {})),)
    table = text_table(Table(TABLE.title, TABLE.heads, TABLE.columns, TABLE.lines, (CELLS[0], lost)))
    assert [cell.text for cell in table.rows[1].cells] == ["B", "89.00(0.50)", "diverged n=2", ""]


def test_where_the_paper_has_no_numbers_ours_stand_alone():
    alone = Table(TABLE.title, TABLE.heads, TABLE.columns, TABLE.lines, TABLE.cells, compared=False)
    table = text_table(alone)
    assert [str(column) for column in table.columns] == ["init", "net"]
    assert [row.cells[1].text for row in table.rows] == ["90.00(0.10) n=3", "not measured"]
