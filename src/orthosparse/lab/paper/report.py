"""The report: every item with the paper's numbers and ours, as one page, as Markdown, CSV or LaTeX."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from orthosparse.lab.paper import ITEMS
from orthosparse.lab.paper._book import Row
from orthosparse.lab.paper._chapters import Chapter, chapters_of
from orthosparse.lab.paper._page import html
from orthosparse.lab.paper._text import comma_separated, latex, markdown
from orthosparse.registry import lookup

FORMATS: dict[str, Callable[[Sequence[Chapter], Sequence[Row], str], str]] = {
    "csv": lambda chapters, rows, warning: comma_separated(chapters),  # noqa: ARG005 - numbers alone
    "html": html,
    "md": lambda chapters, rows, warning: markdown(chapters, warning),  # noqa: ARG005 - tables alone
    "tex": lambda chapters, rows, warning: latex(chapters),  # noqa: ARG005 - tables alone
}
_TINY = "Tiny versions on embedded digits, to see that everything works: ours are not the paper's experiments here."


def report_of(rows: Iterable[Row], *, format: str = "html", smoke: bool = False) -> str:  # noqa: A002 - its name
    """Return the report of `rows`; rows that belong to no item are left out.

    Args:
        smoke: render the tiny versions of the items.

    Raises:
        ValueError: an unknown format.
    """
    write = lookup(FORMATS, format, "format")
    chapters = chapters_of(ITEMS, list(rows), smoke=smoke)
    shown = {(row["key"], row["seed"]): row for chapter in chapters for row in chapter.rows}
    return write(chapters, list(shown.values()), _TINY if smoke else "")


def write_report(
    rows: Iterable[Row],
    out: Path,
    *,
    format: str = "html",  # noqa: A002 - its name
    smoke: bool = False,
) -> None:
    """Write the report of `rows` to `out`, making its folder."""
    text = report_of(rows, format=format, smoke=smoke)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text, encoding="utf-8")
