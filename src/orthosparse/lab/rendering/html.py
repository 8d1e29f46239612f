"""One self-contained page as HTML: everything is inline, and nothing is asked of the network."""

from importlib.resources import files
from itertools import groupby
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from orthosparse.files import write_atomically
from orthosparse.lab.rendering.charts import svg_of
from orthosparse.lab.rendering.contents import Figure, Page, Picture, Section, Table
from orthosparse.lab.rendering.theme import COLOURS


def html_of(page: Page) -> str:
    """Return the page as one HTML text; everything but the charts' own markup is escaped."""
    package = __name__.rpartition(".")[0]
    environment = Environment(
        loader=PackageLoader(package, "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    css, script = (
        Markup(files(package).joinpath(name).read_text(encoding="utf-8")) for name in ("page.css", "page.js")
    )
    light, dark = (
        "; ".join(f"--{role}: {shades[index]}" for role, shades in COLOURS.items()) + ";" for index in (0, 1)
    )
    sections = [_section(section) for section in page.sections]
    return environment.get_template("page.html.jinja").render(
        page=page,
        sections=sections,
        runs=Markup(page.runs.replace("<", "\\u003c")),
        css=css,
        script=script,
        light=light,
        dark=dark,
    )


def write_page(page: Page, path: Path) -> None:
    """Write the page to `path`, creating its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, html_of(page).encode())


def _section(section: Section) -> dict[str, Any]:
    return {
        "given": section,
        "tables": [_table(table) for table in section.tables],
        "figures": [_figure(figure) for figure in section.figures],
        "pictures": [_figure(picture) for picture in section.pictures],
    }


def _figure(shown: Figure | Picture) -> dict[str, Any]:
    """Return what the template shows of a figure or a picture: either its SVG, or the source of an image."""
    if isinstance(shown, Picture):
        return {"title": shown.title, "caption": shown.caption, "source": shown.source, "svg": "", "model": ""}
    svg = Markup(svg_of(shown)) if any(len(series.xs) for series in shown.series) else ""
    return {"title": shown.title, "caption": shown.caption, "source": "", "svg": svg, "model": shown.model}


def _table(table: Table) -> dict[str, Any]:
    """Return a table as the template shows it: columns of one group share a heading and a cell."""
    grouped = groupby(enumerate(table.columns), key=lambda each: each[1].group or each[0])
    groups = [[index for index, _ in columns] for _, columns in grouped]
    first = [table.columns[indices[0]] for indices in groups]
    numbers = [index for index, column in enumerate(first) if not column.text]
    return {
        "given": table,
        "columns": [
            {
                "heading": column.group or column.heading,
                "text": column.text,
                "model": column.model,
                "head": index < min(numbers, default=1),
            }
            for index, column in enumerate(first)
        ],
        "rows": [
            {
                "given": row,
                "begins": index > 0 and table.rows[index - 1].block != row.block,
                "cells": [[row.cells[position] for position in indices] for indices in groups],
            }
            for index, row in enumerate(table.rows)
        ],
    }
