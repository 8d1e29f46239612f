"""The report as Markdown, CSV and LaTeX: the tables and notes of every item."""

import csv
import io
from collections.abc import Iterator, Sequence

from orthosparse.lab.paper._chapters import Chapter
from orthosparse.lab.paper._rendered import Cell, Table
from orthosparse.lab.paper._words import NO_CELL, NOT_MEASURED, difference_text, digits_of, number_text, ours_text

_CSV = ["item", "table", "line", "column", "paper_mean", "paper_std", "our_mean", "our_std", "seeds", "difference"]


def markdown(chapters: Sequence[Chapter], warning: str = "") -> str:
    """Return every item as a section; the best of a block is bold, the best of a column bold and italic."""
    parts = ["# The paper, item by item", ""] + [f"**{warning}**", ""] * bool(warning)
    for chapter in chapters:
        parts += [f"## {chapter.title}", "", f"`{chapter.name}`: {chapter.state} measured; {chapter.machines}.", ""]
        for table in chapter.rendered.tables:
            parts += [f"### {table.title}", "", *_markdown_table(table), ""]
            parts += [table.caption, ""] if table.caption else []
        for figure in chapter.rendered.figures:
            curves = ", ".join(series.label for series in figure.series)
            parts += [f"Figure in the HTML report: {figure.title} ({curves}).", ""]
        parts += [f"- {note}" for note in chapter.rendered.notes] + [""]
    return "\n".join(parts)


def comma_separated(chapters: Sequence[Chapter]) -> str:
    """Return a line for every cell; cells that are not measured have empty numbers of ours."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow([*_CSV, "note"])
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
            parts += [f"% {chapter.name}: {_escaped(table.title)}", *_latex_table(table), ""]
    return "\n".join(parts)


def _markdown_table(table: Table) -> Iterator[str]:
    heads = [*table.heads]
    for column in table.columns:
        sides = ["paper", "ours", "difference"] if table.compared else ["ours"]
        heads += [f"{column.label} {side}" for side in sides]
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---|' * len(heads)}"
    for line, cells in zip(table.lines, table.cells, strict=True):
        texts = list(line.heads)
        for index, cell in enumerate(cells):
            digits = digits_of(table, index)
            ours = _starred(ours_text(cell, digits), cell.our_mark) + (f" ({cell.note})" if cell.note else "")
            paper = _starred(number_text(cell.paper, digits, none=NO_CELL), cell.paper_mark)
            texts += [paper, ours, difference_text(cell, digits)] if table.compared else [ours]
        yield f"| {' | '.join(texts)} |"


def _starred(text: str, mark: str) -> str:
    return {"": text, "block": f"**{text}**", "column": f"***{text}***"}[mark]


def _numbers(cell: Cell) -> list[str]:
    sides = [part for number in (cell.paper, cell.ours) for part in (number or (None, None))]
    values = [*sides, cell.seeds, cell.difference]
    return ["" if value is None else f"{value:.6g}" for value in values]


def _latex_table(table: Table) -> Iterator[str]:
    sides = 2 if table.compared else 1
    notes: dict[str, str] = {}
    yield rf"\begin{{tabular}}{{{'l' * len(table.heads)}{'r' * sides * len(table.columns)}}}"
    yield r"\toprule"
    spans = [rf"\multicolumn{{{sides}}}{{c}}{{{_escaped(column.label)}}}" for column in table.columns]
    yield " & ".join([*map(_escaped, table.heads), *spans]) + r" \\"
    if table.compared:
        yield " & ".join([""] * len(table.heads) + ["paper", "ours"] * len(table.columns)) + r" \\"
    block = None
    for line, cells in zip(table.lines, table.cells, strict=True):
        if line.block != block:
            yield r"\midrule"
        block = line.block
        texts = [_escaped(head) for head in line.heads]
        for index, cell in enumerate(cells):
            digits = digits_of(table, index)
            paper = _bold(number_text(cell.paper, digits, none="--"), cell.paper_mark)
            ours = _bold(number_text(cell.ours, digits, none=NOT_MEASURED if cell.exists else "--"), cell.our_mark)
            if cell.note:
                ours += notes.setdefault(cell.note, rf"\textsuperscript{{{len(notes) + 1}}}")
            texts += [paper, ours] if table.compared else [ours]
        yield " & ".join(texts) + r" \\"
    yield r"\bottomrule"
    yield r"\end{tabular}"
    for note, sign in notes.items():
        yield rf"\par{{\footnotesize {sign} {_escaped(note)}\par}}"


def _bold(text: str, mark: str) -> str:
    return {"": text, "block": rf"\textbf{{{text}}}", "column": rf"\underline{{\textbf{{{text}}}}}"}[mark]


def _escaped(text: str) -> str:
    for sign in "&%_#":
        text = text.replace(sign, f"\\{sign}")
    return text
