"""Tables as Markdown and LaTeX."""

import re
from collections.abc import Iterator

from orthosparse.lab.rendering.contents import Cell, Table

_BOLD = {"": "", "block": "**", "column": "***"}
_LATEX = {"": "{}", "block": r"\textbf{{{}}}", "column": r"\underline{{\textbf{{{}}}}}"}


def markdown_text(text: str) -> str:
    r"""Return a text that Markdown shows as it is.

    Example:
        >>> print(markdown_text("||A'A - I|| <b> *"))
        \|\|A'A - I\|\| \<b\> \*
    """
    return re.sub(r"([\\`*_\[\]<>|#~])", r"\\\1", text)


def markdown_table(table: Table) -> str:
    """Return a table; the best of a block is bold, the best of a column bold and italic, notes stand in brackets."""
    lines = [f"| {' | '.join(markdown_text(str(column)) for column in table.columns)} |"]
    lines.append(f"|{'---|' * len(table.columns)}")
    lines += [f"| {' | '.join(map(_markdown_cell, row.cells))} |" for row in table.rows]
    return "\n".join(lines)


def latex_text(text: str) -> str:
    r"""Return a text that LaTeX shows as it is.

    Example:
        >>> print(latex_text("12.5 % & a_b"))
        12.5 \% \& a\_b
    """
    text = re.sub(r"([&%_#$])", r"\\\1", text)
    return text.replace("±", r"$\pm$").replace("–", "--").replace("‡", r"$^\ddagger$")


def latex_table(table: Table) -> str:
    """Return a tabular with booktabs rules; the notes of its cells stand below it."""
    notes: dict[str, str] = {}
    lines = [rf"\begin{{tabular}}{{{''.join('l' if column.text else 'r' for column in table.columns)}}}", r"\toprule"]
    if any(column.group for column in table.columns):
        lines.append(" & ".join(_spans(table)) + r" \\")
    lines.append(" & ".join(latex_text(column.heading) for column in table.columns) + r" \\")
    block = None
    for row in table.rows:
        lines += [r"\midrule"] if row.block != block else []
        block = row.block
        lines.append(" & ".join(_latex_cell(cell, notes) for cell in row.cells) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}"]
    lines += [rf"\par{{\footnotesize {sign} {latex_text(note)}\par}}" for note, sign in notes.items()]
    return "\n".join(lines)


def _markdown_cell(cell: Cell) -> str:
    text = markdown_text(cell.text)
    bold = _BOLD[cell.mark]
    return f"{bold}{text}{bold}" + (f" ({markdown_text(cell.note)})" if cell.note else "")


def _spans(table: Table) -> Iterator[str]:
    """Yield the headings over groups of columns."""
    groups = [column.group for column in table.columns]
    index = 0
    while index < len(groups):
        count = 1
        while groups[index] and index + count < len(groups) and groups[index + count] == groups[index]:
            count += 1
        yield rf"\multicolumn{{{count}}}{{c}}{{{latex_text(groups[index])}}}" if groups[index] else ""
        index += count


def _latex_cell(cell: Cell, notes: dict[str, str]) -> str:
    text = _LATEX[cell.mark].format(latex_text(cell.text))
    return text + (notes.setdefault(cell.note, rf"\textsuperscript{{{len(notes) + 1}}}") if cell.note else "")
