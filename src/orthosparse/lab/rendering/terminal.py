"""Tables in a terminal."""

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from orthosparse.lab.rendering.contents import Table
from orthosparse.lab.rendering.theme import COLOURS

_NOTE = 24  # columns for words behind the first
_PLAIN = 160  # columns where there is no terminal to ask


def console(*, stderr: bool = False) -> Console:
    """Return a console as wide as the terminal, or wide enough for a table where the output goes to a file."""
    found = Console(stderr=stderr)
    return found if found.is_terminal else Console(stderr=stderr, width=_PLAIN)


def print_table(table: Table, to: Console, *, widest: int = _NOTE) -> None:
    """Print a table; the first cells have the colour of their row's role where the terminal has colours.

    Args:
        widest: characters of a column of words behind the first; longer ones are cut.
    """
    shown = RichTable(
        title=table.title, title_justify="left", title_style="bold", header_style="dim", box=SIMPLE_HEAD, padding=0
    )
    for index, column in enumerate(table.columns):
        # Where the terminal is narrow, words are cut and numbers are not.
        least = None if column.text else max((len(row.cells[index].text) for row in table.rows), default=0)
        most = widest if column.text and index else None
        shown.add_column(str(column), justify="left" if column.text else "right", min_width=least, max_width=most)
    for row in table.rows:
        colour = COLOURS[row.role][1] if row.role else ""
        cells = [Text(cell.text, style="" if index else colour) for index, cell in enumerate(row.cells)]
        for cell in cells:
            cell.no_wrap, cell.overflow = True, "ellipsis"
        shown.add_row(*cells)
    to.print(shown)
