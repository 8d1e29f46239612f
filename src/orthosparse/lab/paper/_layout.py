"""Numbers as people read them: the tables of items as plain tables of text, which every format is made from."""

from collections.abc import Iterable

from orthosparse.lab.paper._tables import Cell, Column, Table
from orthosparse.lab.paper.statistics import Difference, Number, is_clear
from orthosparse.lab.rendering import contents

NOT_MEASURED = "not measured"
DIVERGED = "diverged"  # with every seed
NO_CELL = "–"
CLEAR = "‡"  # behind a difference of more than two standard errors


def text_table(table: Table) -> contents.Table:
    """Return the table as text; where the paper has numbers, a column is three: the paper's, ours, their difference."""
    columns = [contents.Column(head, text=True) for head in table.heads]
    for column in table.columns:
        sides = ("paper", "ours", "difference") if table.compared else ("",)
        columns += [
            contents.Column(side or column.label, column.label if side else "", model=column.model) for side in sides
        ]
    rows = [
        contents.Row(
            [
                *(contents.Cell(head) for head in line.heads),
                *(
                    part
                    for column, cell in zip(table.columns, cells, strict=True)
                    for part in _parts(table, column, cell)
                ),
            ],
            block=line.block,
            method=line.method,
            model=line.model,
        )
        for line, cells in zip(table.lines, table.cells, strict=True)
    ]
    return contents.Table(columns, rows, title=table.title, caption=table.caption)


def number_text(number: Number | None, digits: int, *, none: str = "") -> str:
    """Return ``mean(deviation)``; what the digits would show as zero gets two significant ones.

    Example:
        >>> number_text((89.791, 0.3), 2), number_text((45000.0, None), 0), number_text((4.2e-7, None), 2)
        ('89.79(0.30)', '45,000', '4.2e-07')
    """
    if number is None:
        return none
    mean, std = number
    if mean and abs(mean) < 0.5 * 10.0**-digits:
        return f"{mean:.2g}" + ("" if std is None else f"({std:.1g})")
    return f"{mean:,.{digits}f}" + ("" if std is None else f"({std:,.{digits}f})")


def difference_text(cell: Cell, digits: int) -> str:
    """Return ours less the paper's with its sign and its standard error, marked where it is more than two of them.

    Where ours trained for other epochs, that is said instead.

    Example:
        >>> difference_text(Cell(difference=-0.5, error=0.2), 2), difference_text(Cell(difference=0.1), 2)
        ('-0.50 ± 0.20 ‡', '+0.10')
        >>> difference_text(Cell((80.0, 0.2), (50.0, None), 1, setting="8 of 100 epochs", whole=False), 2)
        '8 of 100 epochs'
    """
    if cell.difference is None:
        return "" if cell.whole else cell.setting
    text = f"{cell.difference:+,.{digits}f}"
    if cell.error is None:
        return text
    clear = is_clear(Difference(cell.difference, cell.error))
    return f"{text} ± {cell.error:,.{digits}f}" + (f" {CLEAR}" if clear else "")


def digits_of(table: Table, column: Column) -> int:
    """Return the digits of a column."""
    return table.digits if column.digits is None else column.digits


def seeds_text(counts: Iterable[int]) -> str:
    """Return how many seeds several numbers have.

    Example:
        >>> seeds_text([1, 3, 1]), seeds_text([1])
        ('1 to 3 seeds', '1 seed')
    """
    least, most = min(found := list(counts)), max(found)
    return f"{most} seed{'s' * (most > 1)}" if least == most else f"{least} to {most} seeds"


def seconds_text(seconds: float) -> str:
    """Return a time in the largest unit that fits.

    Example:
        >>> seconds_text(0.5), seconds_text(90), seconds_text(7200)
        ('0.5 s', '1.5 min', '2.0 h')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"


def _parts(table: Table, column: Column, cell: Cell) -> list[contents.Cell]:
    digits = digits_of(table, column)
    if cell.ours is None and cell.rows:
        ours = contents.Cell(f"{DIVERGED} n={len(cell.rows)}", note=cell.note, kind="ours")
    elif cell.ours is None:
        ours = contents.Cell(NOT_MEASURED if cell.exists else NO_CELL, kind="missing")
    else:
        text = f"{number_text(cell.ours, digits)} n={cell.seeds}"
        ours = contents.Cell(text, cell.our_mark, cell.note, "ours")
    if not table.compared:
        return [ours]
    paper = contents.Cell(number_text(cell.paper, digits, none=NO_CELL), cell.paper_mark, kind="paper")
    return [paper, ours, contents.Cell(difference_text(cell, digits), note=cell.cause, kind="difference")]
