"""The report as one HTML page that needs no network: tables, figures, filters, runs."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from orthosparse.lab.paper._book import Row
from orthosparse.lab.paper._chapters import Chapter
from orthosparse.lab.paper._runs import runs_json
from orthosparse.lab.paper._svg import figure_svg, picture_svg
from orthosparse.lab.paper._words import NO_CELL, difference_text, digits_of, number_text, ours_text
from orthosparse.lab.rendering.theme import css_variables


def html(chapters: Sequence[Chapter], rows: Iterable[Row], warning: str = "") -> str:
    """Return the page; everything but the figures' own markup is escaped. A warning stands on top."""
    environment = Environment(
        loader=ChoiceLoader(
            [PackageLoader("orthosparse.lab.paper", "."), PackageLoader("orthosparse.lab.rendering", ".")]
        ),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html.jinja").render(
        chapters=chapters,
        warning=warning,
        models=_names(chapters, "model"),
        methods=_names(chapters, "method"),
        runs=Markup(runs_json(rows)),  # escaped by its maker
        figure_svg=lambda figure: Markup(figure_svg(figure)),
        picture_svg=lambda picture: Markup(picture_svg(picture)),
        number_text=number_text,
        ours_text=ours_text,
        difference_text=difference_text,
        digits_of=digits_of,
        no_cell=NO_CELL,
        done=sum(chapter.done for chapter in chapters),
        date=f"{datetime.now(UTC):%Y-%m-%d}",
        light=css_variables(0),
        dark=css_variables(1),
    )


def _names(chapters: Sequence[Chapter], tag: str) -> list[str]:
    """Return the models or the methods that something on the page belongs to, in the order in which they come."""
    found: dict[str, None] = {}
    for chapter in chapters:
        shown = chapter.rendered
        tagged = [place for table in shown.tables for place in (*table.columns, *table.lines)]
        tagged += [place for figure in shown.figures for place in (figure, *figure.series)]
        found |= dict.fromkeys(name for place in tagged for name in getattr(place, tag, "").split("|"))
    return [name for name in found if name]
