"""Tables as text, and as HTML for notebooks."""

from collections.abc import Iterable, Sequence
from html import escape


def text_table(headings: Sequence[str], rows: Iterable[Sequence[str]], *, left: Sequence[str]) -> str:
    """Return a table in columns as wide as their widest cell.

    Args:
        left: the headings whose columns stand to the left; the others, of numbers, stand to the right.

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


def html_table(headings: Sequence[str], rows: Iterable[Sequence[str]], foot: Sequence[str] = ()) -> str:
    """Return a table, and below it the lines of `foot`; every text is escaped.

    Example:
        >>> html_table(["layer"], [["a<b"]], ["one"])
        '<table><thead><tr><th>layer</th></tr></thead><tbody><tr><td>a&lt;b</td></tr></tbody></table><p>one</p>'
    """
    head = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    below = f"<p>{'<br/>'.join(map(escape, foot))}</p>" if foot else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{below}"
