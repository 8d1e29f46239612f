"""What an item shows, as plain data: tables with the paper's numbers beside ours, figures, pictures and notes."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from orthosparse.lab.rendering.contents import Figure, Picture

# Mean and standard deviation; None where one number is all there is.
Number = tuple[float, float | None]
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


@dataclass(frozen=True)
class Cell:
    """One cell: the paper's number, ours, and their difference.

    Attributes:
        exists: False where there is no such combination.
        paper_mark, our_mark: ``block`` for the best of its block, ``column`` for the best sparse one of its column.
        setting, whole: see `Measurement`.
        difference: ours less the paper's; None where one of them is missing, or ours trained for other epochs.
        error: the standard error of the difference; None where neither side states a deviation.
        cause: why the difference is more than two standard errors, where that is known.
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
    difference: float | None = None
    error: float | None = None
    cause: str = ""


@dataclass(frozen=True)
class Column:
    """A column: its name in the numbers, its heading, the model that it belongs to, digits if not the table's."""

    key: str
    label: str
    model: str = ""
    digits: int | None = None


@dataclass(frozen=True)
class Line:
    """A line of a table: its name in the numbers, its headings, the block it stands in.

    Attributes:
        method: what the page finds it by; several names are joined by ``|``.
        ranked: whether it competes for the marks of its block and column (the dense ones do not).
    """

    key: str
    heads: tuple[str, ...]
    block: str = ""
    method: str = ""
    model: str = ""
    ranked: bool = True


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

    tables: list[Table] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    pictures: list[Picture] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
