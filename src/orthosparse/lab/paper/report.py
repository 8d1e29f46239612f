"""The report: every item with the paper's numbers and ours, as one page, as Markdown, CSV or LaTeX."""

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from orthosparse.files import write_atomically
from orthosparse.lab.paper import ITEMS
from orthosparse.lab.paper._chapters import Chapter, chapters_of, coverage, runs_json
from orthosparse.lab.paper._layout import CLEAR, text_table
from orthosparse.lab.paper._rows import Row
from orthosparse.lab.paper._tables import Cell
from orthosparse.lab.rendering import contents
from orthosparse.lab.rendering.html import html_of
from orthosparse.lab.rendering.text import latex_table, latex_text, markdown_table, markdown_text
from orthosparse.registry import lookup

_TITLE = "The paper, item by item"
_LEAD = (
    'Every table and figure of "Sparser, Better, Deeper, Stronger: Improving Static Sparse Training with Exact '
    "Orthogonal Initialization\", the paper's numbers beside ours. Ours are measured; a cell without a run says so."
)
_KEY = (
    "A cell shows the paper's number, ours, and ours less the paper's with its standard error: mean(standard deviation "
    "over seeds), n seeds. Bold is the best of its block, underlined the best of its column apart from dense networks, "
    "on either side, where all were trained for the same epochs and in the same precision. "
    f"{CLEAR}: a difference of more than two standard errors. The paper has five seeds; where we have one, its "
    "deviation stands in for ours. Numbers of other epochs have no difference. * has a note: point at it, tap it, or "
    "go to it by the Tab key."
)
_TINY = "Tiny versions on embedded digits, to see that everything works: ours are not the paper's experiments here."
_CSV = ["item", "table", "line", "column", "paper_mean", "paper_std", "our_mean", "our_std", "seeds", "difference"]


def page_of(chapters: Sequence[Chapter], warning: str = "") -> contents.Page:
    """Return the page: the list of items, a section for each, and all runs."""
    sections = [contents.Section("Items", _KEY, [_list_of(chapters)])]
    for chapter in chapters:
        shown = chapter.rendered
        text = f"orthosparse paper run {chapter.name}: {chapter.state} measured; {chapter.machines}."
        tables = [
            text_table(replace(table, title="") if table.title == chapter.title else table) for table in shown.tables
        ]
        sections.append(
            contents.Section(chapter.title, text, tables, shown.figures, shown.pictures, shown.notes, chapter.name)
        )
    done = sum(chapter.done for chapter in chapters)
    foot = f"orthosparse paper report; {done} pairs measured; {datetime.now(UTC):%Y-%m-%d}"
    return contents.Page(
        _TITLE,
        f"{_LEAD} {coverage(chapters)}",
        sections=sections,
        foot=[foot],
        warning=warning,
        filters=(_tags(sections, "model"), _tags(sections, "method")),
        runs=runs_json(chapters),
    )


def markdown(chapters: Sequence[Chapter], warning: str = "") -> str:
    """Return every item as a section; the best of a block is bold, the best of a column bold and italic."""
    parts = [f"# {_TITLE}", ""] + [f"**{warning}**", ""] * bool(warning) + [coverage(chapters), ""]
    for chapter in chapters:
        said = markdown_text(f"{chapter.state} measured; {chapter.machines}.")
        parts += [f"## {markdown_text(chapter.title)}", "", f"`{chapter.name}`: {said}", ""]
        for table in chapter.rendered.tables:
            parts += [f"### {markdown_text(table.title)}", "", markdown_table(text_table(table)), ""]
            parts += [markdown_text(table.caption), ""] if table.caption else []
        for figure in chapter.rendered.figures:
            curves = ", ".join(series.label for series in figure.series)
            parts += [markdown_text(f"Figure in the HTML report: {figure.title} ({curves})."), ""]
        parts += [f"- {markdown_text(note)}" for note in chapter.rendered.notes] + [""]
    return "\n".join(parts)


def comma_separated(chapters: Sequence[Chapter]) -> str:
    """Return a line for every cell; cells that are not measured have empty numbers of ours."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow([*_CSV, "difference_error", "note"])
    for chapter in chapters:
        for table in chapter.rendered.tables:
            for line, cells in zip(table.lines, table.cells, strict=True):
                for column, cell in zip(table.columns, cells, strict=True):
                    names = [chapter.name, table.title, " ".join(line.heads), column.label]
                    writer.writerow([*names, *_numbers(cell), cell.note if cell.exists else "no such cell"])
    return buffer.getvalue()


def latex(chapters: Sequence[Chapter]) -> str:
    """Return a tabular for every table, with booktabs; the notes of its cells stand below it."""
    parts = [r"% \usepackage{booktabs}"]
    for chapter in chapters:
        for table in chapter.rendered.tables:
            parts += [f"% {chapter.name}: {latex_text(table.title)}", latex_table(text_table(table)), ""]
    return "\n".join(parts)


FORMATS: dict[str, Callable[[Sequence[Chapter], str], str]] = {
    "csv": lambda chapters, warning: comma_separated(chapters),  # noqa: ARG005 - numbers alone
    "html": lambda chapters, warning: html_of(page_of(chapters, warning)),
    "md": markdown,
    "tex": lambda chapters, warning: latex(chapters),  # noqa: ARG005 - tables alone
}


def report_of(rows: Iterable[Row], *, format: str = "html", smoke: bool = False) -> str:  # noqa: A002 - its name
    """Return the report of `rows`; rows that belong to no item are left out.

    Args:
        smoke: render the tiny versions of the items.

    Raises:
        ValueError: an unknown format.
    """
    write = lookup(FORMATS, format, "format")
    return write(chapters_of(ITEMS, list(rows), smoke=smoke), _TINY if smoke else "")


def write_report(
    rows: Iterable[Row],
    out: Path,
    *,
    format: str = "html",  # noqa: A002 - its name
    smoke: bool = False,
) -> None:
    """Write the report of `rows` to `out`, creating its folder."""
    text = report_of(rows, format=format, smoke=smoke)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(out, text.encode())


def _list_of(chapters: Sequence[Chapter]) -> contents.Table:
    columns = [contents.Column(name, text=True) for name in ("item", "title", "measured", "machine and time")]
    rows = [
        contents.Row(
            [
                contents.Cell(chapter.name, link=f"#{chapter.name}"),
                *(contents.Cell(text) for text in (chapter.title, chapter.state, chapter.machines)),
            ]
        )
        for chapter in chapters
    ]
    return contents.Table(columns, rows)


def _tags(sections: Sequence[contents.Section], tag: str) -> list[str]:
    """Return the models or the methods that something on the page belongs to, in the order in which they come."""
    found: dict[str, None] = {}
    for section in sections:
        tagged: list[object] = [part for table in section.tables for part in (*table.columns, *table.rows)]
        for figure in section.figures:
            tagged += [figure, *getattr(figure, "series", ())]
        found |= dict.fromkeys(name for part in tagged for name in getattr(part, tag, "").split("|"))
    return [name for name in found if name]


def _numbers(cell: Cell) -> list[str]:
    sides = [part for number in (cell.paper, cell.ours) for part in (number or (None, None))]
    values = [*sides, cell.seeds, cell.difference, cell.error]
    return ["" if value is None else f"{value:.6g}" for value in values]
