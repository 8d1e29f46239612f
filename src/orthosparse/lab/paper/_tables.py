"""Tables out of measurements: means and deviations, the paper's numbers beside them, the best ones marked."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import Any

from orthosparse.lab.paper.statistics import Number, cause_of, is_clear, summary, to_paper
from orthosparse.lab.rendering.contents import Figure, Picture

# The keys of a line and a column, which name a cell.
Place = tuple[str, str]


@dataclass(frozen=True)
class Measurement:
    """Our values of one cell, a value for each seed.

    Attributes:
        note: what sets these runs apart from the paper's, such as fewer epochs or another precision.
        rows: where they come from, if each has a row of its own.
        setting: the part of the note that says how they were trained differently; only runs with the same one are
            compared with each other.
        whole: whether they trained for the epochs that were asked for.
    """

    values: Sequence[float] = ()
    note: str = ""
    rows: Sequence[dict[str, Any]] = ()
    setting: str = ""
    whole: bool = True

    @property
    def lost(self) -> int:
        """How many runs have no value, as they diverged."""
        return max(0, len(self.rows) - len(self.values))


@dataclass(frozen=True)
class Cell:
    """One cell: the paper's number, ours, and their difference.

    Attributes:
        seeds: of ours; the fewest, where the number is made of several experiments.
        exists: False where there is no such combination.
        paper_mark, our_mark: ``block`` for the best of its block, ``column`` for the best sparse one of its column.
        setting, whole, lost: see `Measurement`.
        difference: ours less the paper's; None where one of them is missing, where ours trained for other epochs, and
            where runs diverged, as the paper's means have those that failed.
        error: the standard error of the difference; None where neither side states a deviation.
        cause: what may be why the difference is more than two standard errors, if something is done differently.
    """

    paper: Number | None = None
    ours: Number | None = None
    seeds: int = 0
    note: str = ""
    exists: bool = True
    paper_mark: str = ""
    our_mark: str = ""
    rows: Sequence[dict[str, Any]] = ()
    setting: str = ""
    whole: bool = True
    lost: int = 0
    difference: float | None = None
    error: float | None = None
    cause: str = ""


@dataclass(frozen=True)
class Column:
    """A column: its name in the numbers, its heading, the model that it belongs to, digits if not the table's.

    Attributes:
        fields: those of a training that all cells of the column share.
    """

    key: str
    label: str
    model: str = ""
    digits: int | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Line:
    """A line of a table: its name in the numbers, its headings, the block it stands in.

    Attributes:
        method: what the page finds it by; several names are joined by ``|``.
        ranked: whether it competes for the marks of its block and column (the dense ones do not).
        fields: those of a training that all cells of the line share.
    """

    key: str
    heads: tuple[str, ...]
    block: str = ""
    method: str = ""
    model: str = ""
    ranked: bool = True
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Table:
    """Lines by columns of cells; `digits` after the point; `compared` says whether the paper has numbers for it."""

    title: str
    heads: tuple[str, ...]
    columns: tuple[Column, ...]
    lines: tuple[Line, ...]
    cells: tuple[tuple[Cell, ...], ...]
    digits: int = 2
    compared: bool = True
    caption: str = ""


@dataclass(frozen=True)
class Rendered:
    """All that an item shows."""

    tables: Sequence[Table] = ()
    figures: Sequence[Figure] = ()
    pictures: Sequence[Picture] = ()
    notes: Sequence[str] = ()


def table_of(
    title: str,
    columns: Sequence[Column],
    lines: Sequence[Line],
    measured: Mapping[Place, Measurement | None],
    *,
    item: str | None = None,
    heads: tuple[str, ...] = ("method", "init"),
    better: Callable[..., Any] | None = max,
    digits: int = 2,
) -> Table:
    """Return the table of measurements by line and column; None, or none at all, where there is no such cell.

    Args:
        item: the item whose numbers stand in the paper; None where the paper has only a figure.
        better: max or min, by which the best of a block and of a column are marked; None marks nothing.
    """
    cells = [
        [_cell(measured.get((line.key, column.key)), line, column, item, title) for column in columns] for line in lines
    ]
    if better is not None:
        for index, column in enumerate(columns):
            _mark(cells, lines, index, better, digits if column.digits is None else column.digits)
    return Table(
        title=title,
        heads=heads,
        columns=tuple(columns),
        lines=tuple(lines),
        cells=tuple(map(tuple, cells)),
        digits=digits,
        compared=item is not None,
    )


@cache
def paper_tables() -> dict[str, dict[str, dict[str, Number]]]:
    """Return the paper's numbers by item, line (``distribution/scheme``) and column (``model/data``)."""
    text = files("orthosparse.lab.paper").joinpath("numbers.json").read_text(encoding="utf-8")
    found = json.loads(text)
    return {
        item: {line: {column: (mean, std) for column, (mean, std) in cells.items()} for line, cells in lines.items()}
        for item, lines in found.items()
    }


def paper_number(item: str, line: str, column: str) -> Number | None:
    """Return a cell of the paper, None where it has none.

    Example:
        >>> paper_number("contemporary", "erk/eoi", "resnet32/cifar10")
        (89.79, 0.38)
    """
    return paper_tables().get(item, {}).get(line, {}).get(column)


def column_of(table: Table, key: str) -> dict[str, Cell]:
    """Return the cells of a column by line."""
    index = next(index for index, column in enumerate(table.columns) if column.key == key)
    return {line.key: cells[index] for line, cells in zip(table.lines, table.cells, strict=True)}


def part_of(table: Table, *, lines: Sequence[str] | None = None, columns: Sequence[str] | None = None) -> Table:
    """Return a table of some lines and columns."""
    rows = [index for index, line in enumerate(table.lines) if lines is None or line.key in lines]
    across = [index for index, column in enumerate(table.columns) if columns is None or column.key in columns]
    return replace(
        table,
        columns=tuple(table.columns[index] for index in across),
        lines=tuple(table.lines[row] for row in rows),
        cells=tuple(tuple(table.cells[row][index] for index in across) for row in rows),
    )


def _cell(measured: Measurement | None, line: Line, column: Column, item: str | None, title: str) -> Cell:
    paper = None if item is None else paper_number(item, line.key, column.key)
    if measured is None:
        return Cell(paper, exists=False)
    ours, seeds = summary(measured.values), len(measured.values)
    found = Cell(
        paper,
        ours,
        seeds,
        measured.note,
        rows=measured.rows,
        setting=measured.setting,
        whole=measured.whole,
        lost=measured.lost,
    )
    if ours is None or paper is None or item is None or not measured.whole or measured.lost:
        return found
    difference = to_paper(ours, seeds, paper)
    cause = cause_of(item, title, line.key) if is_clear(difference) else ""
    return replace(found, difference=difference.value, error=difference.error, cause=cause)


def _mark(cells: list[list[Cell]], lines: Sequence[Line], index: int, better: Callable[..., Any], digits: int) -> None:
    """Mark the best of each block, and the best of the column, as the paper does; ties in the digits shown share it.

    Nothing is marked where ours were trained for different epochs or in different precisions, and nothing is best alone
    or with runs that diverged.
    """
    for side in ("paper", "ours"):
        means = {}
        for row, line in enumerate(lines):
            cell = cells[row][index]
            value = getattr(cell, side)
            if line.ranked and value is not None and (side == "paper" or not cell.lost):
                means[row] = round(value[0], digits)
        for row, mean in means.items():
            block = [other for other in means if lines[other].block == lines[row].block]
            for mark, group in (("column", [*means]), ("block", block)):
                comparable = side == "paper" or len({cells[other][index].setting for other in group}) == 1
                if len(group) > 1 and comparable and mean == better(means[other] for other in group):
                    cells[row][index] = _marked(cells[row][index], side, mark)
                    break


def _marked(cell: Cell, side: str, mark: str) -> Cell:
    return replace(cell, paper_mark=mark) if side == "paper" else replace(cell, our_mark=mark)
