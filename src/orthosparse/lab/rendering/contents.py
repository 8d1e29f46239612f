"""What a page holds, as plain data: tables, figures, pictures and the sections they stand in, before any format."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Cell:
    """The text of one cell.

    Attributes:
        mark: ``block`` for the best of its block, ``column`` for the best of its column.
        note: what a reader should know: under the pointer or with the keyboard's focus on a page, in brackets in
            Markdown, below a LaTeX table.
        kind: how a page sets it: ``paper``, ``ours``, ``difference``, ``missing``.
        link: an address on the same page.
    """

    text: str
    mark: str = ""
    note: str = ""
    kind: str = ""
    link: str = ""


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        group: the heading over several columns; a page shows the cells of one group one below the other.
        text: whether it holds words, set to the left, or numbers, set to the right.
        model: what the filter of a page finds it by.
    """

    heading: str
    group: str = ""
    text: bool = False
    model: str = ""

    def __str__(self) -> str:
        return f"{self.group} {self.heading}".strip()


@dataclass(frozen=True)
class Row:
    """A row of a table.

    Attributes:
        role: a colour of the theme for its first cell.
        block: a rule is drawn where it changes from one row to the next.
        method, model: what the filters of a page find it by; several names are joined by ``|``.
    """

    cells: Sequence[Cell]
    role: str = ""
    block: str = ""
    method: str = ""
    model: str = ""


@dataclass(frozen=True)
class Table:
    """Rows by columns of text; `folded` is a line to click on that opens the table, empty shows it at once."""

    columns: Sequence[Column]
    rows: Sequence[Row]
    title: str = ""
    caption: str = ""
    folded: str = ""


def plain_table(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    text: Sequence[int] = (0,),
    roles: Sequence[str] = (),
    folded: str = "",
    title: str = "",
) -> Table:
    """Return a table of strings.

    Args:
        text: the columns that hold words.
        roles: a colour for the first cell of each row; empty for none.
    """
    columns = [Column(heading, text=index in text) for index, heading in enumerate(headings)]
    colours = roles or [""] * len(rows)
    made = [Row([Cell(cell) for cell in row], role) for row, role in zip(rows, colours, strict=True)]
    return Table(columns, made, title=title, folded=folded)


@dataclass(frozen=True)
class Series:
    """A curve of a figure, or points alone.

    Attributes:
        ys: None leaves a gap.
        role: a colour of the theme.
        style: a line style of matplotlib.
        method: as of a `Row`.
        points: ``full`` or ``hollow`` for points that no curve joins.
        deviations: of the values, where they are means.
        bins: whether the curve is a histogram: a step from each x to the next, filled.
        names: what the points are, to be read under the pointer instead of their position on the horizontal axis.
    """

    label: str
    xs: Sequence[float]
    ys: Sequence[float | None]
    role: str = "ink"
    style: str = "solid"
    method: str = ""
    points: str = ""
    deviations: Sequence[float | None] = ()
    bins: bool = False
    width: float = 1.6
    names: Sequence[str] = ()


@dataclass(frozen=True)
class Figure:
    """Curves over common axes.

    Attributes:
        x, y: the names of the axes.
        top, bottom: where the vertical axis ends; a note in the figure names values beyond it.
        names: what stands at 0, 1, 2 ... of the horizontal axis, where that has no numbers.
    """

    title: str
    x: str
    y: str
    series: Sequence[Series]
    log_x: bool = False
    log_y: bool = False
    top: float | None = None
    bottom: float | None = None
    caption: str = ""
    model: str = ""
    names: Sequence[str] = ()


@dataclass(frozen=True)
class Picture:
    """A data URI (see `pictures.picture_of`) and its captions."""

    title: str
    source: str
    caption: str = ""


@dataclass(frozen=True)
class Tile:
    """A headline number, in the colour of a role."""

    label: str
    value: str
    note: str = ""
    role: str = "ink"


@dataclass(frozen=True)
class Section:
    """A heading and what stands below it.

    Attributes:
        anchor: the address of the section on its page.
        figures: two in a row where there is room; pictures may stand among them.
        pictures: small, four in a row.
        notes: a list below everything else.
    """

    title: str
    text: str = ""
    tables: Sequence[Table] = ()
    figures: Sequence[Figure | Picture] = ()
    pictures: Sequence[Picture] = ()
    notes: Sequence[str] = ()
    anchor: str = ""


@dataclass(frozen=True)
class Page:
    """What a page says.

    Attributes:
        lead: a sentence or two below the title.
        warning: stands out below the lead.
        foot: where it comes from: command, versions, machine.
        filters: names of models and methods to choose from; what belongs to another one is hidden.
        runs: JSON of single runs to search, see `lab.paper._chapters`; empty for none.
    """

    title: str
    lead: str
    tiles: Sequence[Tile] = ()
    sections: Sequence[Section] = ()
    foot: Sequence[str] = ()
    warning: str = ""
    filters: tuple[Sequence[str], Sequence[str]] = ((), ())
    runs: str = ""
