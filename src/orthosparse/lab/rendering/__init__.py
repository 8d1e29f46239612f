"""Pages and pictures in one look: charts and matrices that are drawn once and read on paper, light or dark screens."""

from orthosparse.lab.rendering.charts import histograms, inline_svg, lines, profiles, save, styled
from orthosparse.lab.rendering.foot import foot_of
from orthosparse.lab.rendering.page import Chart, Page, Picture, Section, Table, Tile, chart_of, html_of, write_page
from orthosparse.lab.rendering.pictures import picture_of
from orthosparse.lab.rendering.terminal import console, print_table
from orthosparse.lab.rendering.theme import LABELS, light

__all__ = [
    "LABELS",
    "Chart",
    "Page",
    "Picture",
    "Section",
    "Table",
    "Tile",
    "chart_of",
    "console",
    "foot_of",
    "histograms",
    "html_of",
    "inline_svg",
    "light",
    "lines",
    "picture_of",
    "print_table",
    "profiles",
    "save",
    "styled",
    "write_page",
]
