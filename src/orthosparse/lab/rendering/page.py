"""One self-contained page: headline numbers, then sections of text, tables, charts and pictures, without a script."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from matplotlib.figure import Figure

from orthosparse.lab.rendering.charts import inline_svg
from orthosparse.lab.rendering.theme import css_variables


@dataclass(frozen=True)
class Tile:
    """A headline number, in the colour of a role."""

    label: str
    value: str
    note: str = ""
    role: str = "ink"


@dataclass(frozen=True)
class Chart:
    """An `svg` element and the sentence below it."""

    title: str
    svg: str
    caption: str = ""


def chart_of(title: str, figure: Figure, caption: str = "") -> Chart:
    """Return a figure as a chart of the page."""
    return Chart(title, inline_svg(figure, title), caption)


@dataclass(frozen=True)
class Picture:
    """A data URI (see `pictures.picture_of`) and its captions."""

    title: str
    source: str
    caption: str = ""


@dataclass(frozen=True)
class Table:
    """Headings and rows of text.

    Attributes:
        text: columns that are words, set to the left; the others are numbers, to the right.
        roles: a colour for the first cell of each row; empty for none.
        folded: a line to click on that opens the table; empty shows it at once.
    """

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    text: Sequence[int] = (0,)
    roles: Sequence[str] = ()
    folded: str = ""


@dataclass(frozen=True)
class Section:
    """A heading and what stands below it.

    Attributes:
        charts: two in a row where there is room; pictures may stand among them.
        pictures: small, four in a row.
    """

    title: str
    text: str = ""
    tables: Sequence[Table] = ()
    charts: Sequence[Chart | Picture] = ()
    pictures: Sequence[Picture] = ()


@dataclass(frozen=True)
class Page:
    """What a page says.

    Attributes:
        lead: a sentence or two below the title.
        foot: where it comes from: command, versions, machine.
    """

    title: str
    lead: str
    tiles: Sequence[Tile] = ()
    sections: Sequence[Section] = ()
    foot: Sequence[str] = ()


def html_of(page: Page) -> str:
    """Return the page as one HTML text; everything but the charts' own markup is escaped."""
    environment = Environment(
        loader=PackageLoader(__name__.rpartition(".")[0], "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    template = environment.get_template("page.html.jinja")
    return template.render(page=page, light=css_variables(0), dark=css_variables(1))


def write_page(page: Page, path: Path) -> None:
    """Write the page to `path`, making its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(html_of(page), encoding="utf-8")
