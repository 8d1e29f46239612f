"""Tables of a page, in a terminal."""

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from orthosparse.lab.rendering.page import Table
from orthosparse.lab.rendering.theme import COLOURS

_PLAIN = 120  # columns where there is no terminal to ask


def console(*, stderr: bool = False) -> Console:
    """Return a console as wide as the terminal, or wide enough for a table where the output goes to a file."""
    found = Console(stderr=stderr)
    return found if found.is_terminal else Console(stderr=stderr, width=_PLAIN)


def print_table(table: Table, title: str, to: Console) -> None:
    """Print a table; the first cells have the colour of their row's role where the terminal has colours."""
    shown = RichTable(title=title, title_justify="left", title_style="bold", header_style="dim", box=SIMPLE_HEAD)
    for index, heading in enumerate(table.headings):
        shown.add_column(heading, justify="left" if index in table.text else "right")
    for index, row in enumerate(table.rows):
        colour = COLOURS[table.roles[index]][1] if table.roles else ""
        shown.add_row(Text(row[0], style=colour), *map(Text, row[1:]))
    to.print(shown)
