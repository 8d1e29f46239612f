"""One renderer for all that people read: tables, figures and pages as plain data, and the formats they take."""

from orthosparse.lab.rendering.charts import STYLE, draw, draw_grid, draw_on, save, svg_of
from orthosparse.lab.rendering.contents import (
    Cell,
    Column,
    Figure,
    Page,
    Picture,
    Row,
    Section,
    Series,
    Table,
    Tile,
    plain_table,
)
from orthosparse.lab.rendering.figures import histograms, lines, profiles
from orthosparse.lab.rendering.foot import foot_of
from orthosparse.lab.rendering.html import html_of, write_page
from orthosparse.lab.rendering.pictures import picture_of
from orthosparse.lab.rendering.terminal import console, print_table
from orthosparse.lab.rendering.text import latex_table, latex_text, markdown_table, markdown_text
from orthosparse.lab.rendering.theme import COLOURS, LABELS

__all__ = [
    "COLOURS",
    "LABELS",
    "STYLE",
    "Cell",
    "Column",
    "Figure",
    "Page",
    "Picture",
    "Row",
    "Section",
    "Series",
    "Table",
    "Tile",
    "console",
    "draw",
    "draw_grid",
    "draw_on",
    "foot_of",
    "histograms",
    "html_of",
    "latex_table",
    "latex_text",
    "lines",
    "markdown_table",
    "markdown_text",
    "picture_of",
    "plain_table",
    "print_table",
    "profiles",
    "save",
    "svg_of",
    "write_page",
]
