"""Tables of a page, in a terminal."""

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from orthosparse.lab.rendering.page import Table
from orthosparse.lab.rendering.theme import COLOURS

_NOTE = 24  # columns for words behind the first
_PLAIN = 160  # columns where there is no terminal to ask


def console(*, stderr: bool = False) -> Console:
    """Return a console as wide as the terminal, or wide enough for a table where the output goes to a file."""
    found = Console(stderr=stderr)
    return found if found.is_terminal else Console(stderr=stderr, width=_PLAIN)


def print_table(table: Table, title: str, to: Console) -> None:
    """Print a table; the first cells have the colour of their row's role where the terminal has colours."""
    shown = RichTable(
        title=title, title_justify="left", title_style="bold", header_style="dim", box=SIMPLE_HEAD, padding=0
    )
    for index, heading in enumerate(table.headings):
        # Where the terminal is narrow, words are cut and numbers are not.
        words, least = index in table.text, max((len(row[index]) for row in table.rows), default=0)
        most = _NOTE if words and index else None
        shown.add_column(
            heading, justify="left" if words else "right", min_width=None if words else least, max_width=most
        )
    for index, row in enumerate(table.rows):
        colour = COLOURS[table.roles[index]][1] if table.roles else ""
        cells = [Text(cell, style=colour if not column else "") for column, cell in enumerate(row)]
        for cell in cells:
            cell.no_wrap, cell.overflow = True, "ellipsis"
        shown.add_row(*cells)
    to.print(shown)
