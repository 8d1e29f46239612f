"""Tables as text, and as HTML for notebooks."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import TypeAlias

Text: TypeAlias = str | tuple[str, str]  # a text, or a text and its tone
TONES = {"good": "#2e8b57", "warning": "#b8860b", "bad": "#c0392b", "faint": "#808080"}  # on light and dark pages
WORDS = ("layer", "shape", "form", "note", "isometry")  # the headings of columns that hold no numbers


def text_table(headings: Sequence[str], rows: Iterable[Sequence[str]], *, left: Sequence[str]) -> str:
    """Return a table whose columns are as wide as their widest cell.

    Args:
        left: headings of the columns that are aligned left; the others, which hold numbers, are aligned right.

    Example:
        >>> print(text_table(["layer", "ratio"], [["fc1", "2.5"], ["a", "10.0"]], left=["layer"]))
        layer  ratio
        ------------
        fc1      2.5
        a       10.0
    """
    table = [headings, *rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = [
        "  ".join(
            cell.ljust(width) if heading in left else cell.rjust(width)
            for cell, width, heading in zip(cells, widths, headings, strict=True)
        ).rstrip()
        for cells in table
    ]
    return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]])


def html_table(
    headings: Sequence[str], rows: Iterable[Sequence[Text]], foot: Sequence[Text] = (), *, fold: int = 24
) -> str:
    """Return a table with the lines of `foot` below it; all texts are escaped.

    Numbers are aligned right, words left. A text may be a pair of text and tone, a key of TONES. A table of more than
    `fold` rows is collapsed.

    Example:
        >>> html_table(["note"], [["a<b"]], ["one"])  # doctest: +NORMALIZE_WHITESPACE
        '<table><thead><tr><th style="padding:0.1em 0.6em;text-align:left">note</th></tr></thead><tbody><tr><td
        style="padding:0.1em 0.6em;text-align:left">a&lt;b</td></tr></tbody></table><p>one</p>'
    """
    lines, sides = [*rows], ["left" if heading in WORDS else "right" for heading in headings]
    head = "".join(map(_cell, headings, sides, ["th"] * len(sides)))
    body = "".join(f"<tr>{''.join(map(_cell, line, sides))}</tr>" for line in lines)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    if len(lines) > fold:
        table = f"<details><summary>{len(lines)} rows</summary>{table}</details>"
    below = f"<p>{'<br/>'.join(map(_span, foot))}</p>" if foot else ""
    return table + below


def _cell(cell: Text, side: str, tag: str = "td") -> str:
    text, tone = (cell, "") if isinstance(cell, str) else cell
    figures = ";font-variant-numeric:tabular-nums" if side == "right" and tag == "td" else ""
    colour = f";color:{TONES[tone]}" if tone else ""
    return f'<{tag} style="padding:0.1em 0.6em;text-align:{side}{figures}{colour}">{escape(text)}</{tag}>'


def _span(line: Text) -> str:
    if isinstance(line, str):
        return escape(line)
    return f'<span style="color:{TONES[line[1]]}">{escape(line[0])}</span>'
