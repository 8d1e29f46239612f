"""Tables as HTML, for notebooks."""

from collections.abc import Iterable, Sequence
from html import escape


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
