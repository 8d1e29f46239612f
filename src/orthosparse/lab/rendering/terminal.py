"""Tables in a terminal."""

from collections.abc import Mapping, Sequence

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from orthosparse.lab.rendering.contents import Column, Table
from orthosparse.lab.rendering.theme import COLOURS

_NOTE = 24  # columns for words behind the first
_WORD = 5  # columns that words, those of a heading too, keep in a narrow terminal
_NAME = 16  # columns that names keep there: words without spaces, which a reader may have to type
_PLAIN = 160  # columns where there is no terminal to ask


def console(*, stderr: bool = False) -> Console:
    """Return a console as wide as the terminal, or wide enough for a table where the output goes to a file."""
    found = Console(stderr=stderr)
    return found if found.is_terminal else Console(stderr=stderr, width=_PLAIN)


def print_table(table: Table, to: Console, *, widest: int = _NOTE) -> None:
    """Print a table; the first cells have the colour of their row's role where the terminal has colours.

    Where the terminal is narrow, headings are broken and words are cut, long names too, numbers never: columns that
    find no room follow below, beside the first column again.

    Args:
        widest: characters of a column of words behind the first; longer ones are cut.
    """
    cells = [[row.cells[index].text for row in table.rows] for index in range(len(table.columns))]
    longest = [max(map(cell_len, column), default=0) for column in cells]
    lowest = [_least(column, length, _WORD) for column, length in zip(table.columns, longest, strict=True)]
    kept = [_WORD if any(" " in cell for cell in column) else _NAME for column in cells]
    least = [_least(*each) for each in zip(table.columns, longest, kept, strict=True)]
    wanted = [max(cell_len(str(column)), length) for column, length in zip(table.columns, longest, strict=True)]
    wanted = [min(width, widest) if i and table.columns[i].text else width for i, width in enumerate(wanted)]
    for part in _parts(least, to.width):
        room = to.width - len(part) - 1  # a space before each column, and one at the end
        whole = [min(max(longest[i], least[i]), wanted[i]) for i in part]
        widths = _widths(whole, [wanted[i] for i in part], room)  # headings give way before cells
        for narrower in (least, lowest):
            widths = _widths([narrower[i] for i in part], widths, room)
        to.print(_shown(table, dict(zip(part, widths, strict=True))))


def _least(column: Column, longest: int, words: int) -> int:
    """Return the width below which a column is not narrowed: that of its longest cell, of words at most `words`."""
    heading = max(map(cell_len, str(column).split()), default=1)
    return max(min(longest, words) if column.text else longest, min(heading, _WORD))


def _parts(least: Sequence[int], room: int) -> list[list[int]]:
    """Return which columns stand side by side: the first one, and as many others as fit with their least widths."""
    parts = [[0]]
    for column in range(1, len(least)):
        together = [*parts[-1], column]
        if len(together) > 2 and sum(least[i] for i in together) + len(together) + 1 > room:
            parts.append([0])
        parts[-1].append(column)
    return parts


def _widths(least: Sequence[int], wanted: Sequence[int], room: int) -> list[int]:
    """Return the wanted widths, the widest narrowed until all fit or each is at its least."""
    widths = list(wanted)
    while sum(widths) > room and (free := [i for i in range(len(widths)) if widths[i] > least[i]]):
        widths[max(free, key=widths.__getitem__)] -= 1
    return widths


def _shown(table: Table, widths: Mapping[int, int]) -> RichTable:
    """Return the columns that have a width; those of a later part have no title."""
    title = table.title if 1 in widths or len(table.columns) == 1 else None
    shown = RichTable(
        title=title, title_justify="left", title_style="bold", header_style="dim", box=SIMPLE_HEAD, padding=0
    )
    for index, width in widths.items():
        column = table.columns[index]
        shown.add_column(str(column), justify="left" if column.text else "right", width=width)
    for row in table.rows:
        colour = COLOURS[row.role][1] if row.role else ""
        cells = [Text(row.cells[index].text, style="" if index else colour) for index in widths]
        for cell in cells:
            cell.no_wrap, cell.overflow = True, "ellipsis"
        shown.add_row(*cells)
    return shown
