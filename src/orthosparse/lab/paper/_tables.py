"""Tables out of measured values: means and deviations, the paper's numbers beside them, the best ones marked."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import fmean, stdev
from typing import Any

from orthosparse.lab.experiments import Experiment
from orthosparse.lab.paper._book import Book
from orthosparse.lab.paper._rendered import Cell, Column, Line, Measured, Number, Table
from orthosparse.lab.paper.numbers import number

Measure = Callable[[Line, Column], Measured | None]


def table_of(
    title: str,
    columns: Sequence[Column],
    lines: Sequence[Line],
    measure: Measure,
    *,
    item: str | None = None,
    heads: tuple[str, ...] = ("method", "init"),
    better: Callable[..., Any] | None = max,
    digits: int = 2,
    caption: str = "",
) -> Table:
    """Return the table of `measure`, which gives None where there is no such cell.

    Args:
        item: the item whose numbers stand in the paper; None where the paper has only a figure.
        better: max or min, by which the best of a block and of a column are marked; None marks nothing.
    """
    cells = [[_cell(measure(line, column), line, column, item) for column in columns] for line in lines]
    if better is not None:
        for index in range(len(columns)):
            _mark(cells, lines, index, better)
    return Table(
        title=title,
        heads=heads,
        columns=tuple(columns),
        lines=tuple(lines),
        cells=tuple(map(tuple, cells)),
        digits=digits,
        compared=item is not None,
        caption=caption,
    )


def accuracies(
    book: Book, columns: Sequence[Column], lines: Sequence[Line], choose: Callable[[Line, Column], Experiment | None]
) -> Measure:
    """Return what measures the test accuracy of the training that `choose` has for a cell, columns trained alike."""
    books = {
        column.key: book.level(found for line in lines if (found := choose(line, column)) is not None)
        for column in columns
    }

    def measure(line: Line, column: Column) -> Measured | None:
        experiment = choose(line, column)
        return None if experiment is None else books[column.key].accuracy(experiment)

    return measure


def summary(values: Sequence[float]) -> Number | None:
    """Return mean and sample deviation; one value has no deviation, no value no mean.

    Example:
        >>> summary([1.0, 3.0]), summary([1.0]), summary([])
        ((2.0, 1.4142135623730951), (1.0, None), None)
    """
    if not values:
        return None
    return fmean(values), stdev(values) if len(values) > 1 else None


def _cell(measured: Measured | None, line: Line, column: Column, item: str | None) -> Cell:
    paper = None if item is None else number(item, line.key, column.key)
    if measured is None:
        return Cell(paper, exists=False)
    found = summary(measured.values)
    return Cell(paper, found, len(measured.values), measured.note, rows=measured.rows, short=measured.short)


def _mark(cells: list[list[Cell]], lines: Sequence[Line], index: int, better: Callable[..., Any]) -> None:
    """Mark the best of each block, and the best of the column, as the paper does; ties are all marked.

    Ours that trained for fewer epochs, or in another precision, are compared among themselves.
    """
    for side in ("paper", "ours"):
        means = {}
        for place, line in enumerate(lines):
            value = getattr(cells[place][index], side)
            if line.ranked and value is not None:
                means[place] = round(value[0], 2)
        ways = {place: cells[place][index].short if side == "ours" else "" for place in means}
        for place, mean in means.items():
            alike = {where: other for where, other in means.items() if ways[where] == ways[place]}
            block = [other for where, other in alike.items() if lines[where].block == lines[place].block]
            # Nothing is best alone.
            if len(alike) > 1 and mean == better(alike.values()):
                mark = "column"
            elif len(block) > 1 and mean == better(block):
                mark = "block"
            else:
                continue
            cell = cells[place][index]
            cells[place][index] = replace(cell, paper_mark=mark) if side == "paper" else replace(cell, our_mark=mark)
