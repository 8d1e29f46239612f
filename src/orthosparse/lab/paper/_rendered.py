"""What an item shows: tables with the paper beside us, curves, pictures and notes, before any format is chosen."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

# Mean and deviation; None where one number is all there is.
Number = tuple[float, float | None]


@dataclass(frozen=True)
class Measured:
    """Our values of one cell, a value for each seed.

    Attributes:
        note: what sets these runs apart from the paper's, such as fewer epochs or another precision.
        rows: where they come from, if each has a row of its own.
        short: the part of the note that says how they were trained otherwise: only runs that have the same one are
            compared.
    """

    values: Sequence[float] = ()
    note: str = ""
    rows: Sequence[dict[str, Any]] = ()
    short: str = ""


@dataclass(frozen=True)
class Cell:
    """One cell: the paper's number, ours and what tells them apart.

    Attributes:
        exists: False where there is no such combination.
        paper_mark, our_mark: ``block`` for the best of its block, ``column`` for the best sparse one of its column too.
        short: see `Measured`.
    """

    paper: Number | None = None
    ours: Number | None = None
    seeds: int = 0
    note: str = ""
    exists: bool = True
    paper_mark: str = ""
    our_mark: str = ""
    rows: Sequence[dict[str, Any]] = ()
    short: str = ""

    @property
    def difference(self) -> float | None:
        """Ours less the paper's."""
        return None if self.paper is None or self.ours is None else self.ours[0] - self.paper[0]


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
class Series:
    """A curve of a figure, or points alone.

    Attributes:
        role: a colour of the theme.
        method: as of a `Line`.
        points: ``full`` or ``hollow`` for points that no curve joins.
        deviations: of the values, where they are means.
    """

    label: str
    xs: Sequence[float]
    ys: Sequence[float | None]
    role: str = "ink"
    dash: str = ""
    method: str = ""
    points: str = ""
    deviations: Sequence[float | None] = ()


@dataclass(frozen=True)
class Figure:
    """Curves over common axes; `names` are what stands at 0, 1, 2 ... of the one below, where that has no numbers."""

    title: str
    x: str
    y: str
    series: tuple[Series, ...]
    log_x: bool = False
    log_y: bool = False
    top: float | None = None
    caption: str = ""
    model: str = ""
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Picture:
    """A matrix entry by entry: 0 is empty, 1 active, 2 active with a weight of zero."""

    title: str
    entries: tuple[tuple[int, ...], ...]
    caption: str = ""
    every: int = 0  # a rule after so many entries, between the kernels of a convolution


@dataclass(frozen=True)
class Rendered:
    """All that an item shows."""

    tables: list[Table] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    pictures: list[Picture] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
