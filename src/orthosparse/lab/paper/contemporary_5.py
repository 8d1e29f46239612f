"""Contemporary networks at density 0.05, and SNIP with EOI at the lower rate that the paper gave it."""

from typing import Any

from orthosparse.lab.experiments import Experiment
from orthosparse.lab.paper import _contemporary
from orthosparse.lab.paper._book import Book
from orthosparse.lab.paper._names import CONTEMPORARY, SEEDS, both
from orthosparse.lab.paper._rendered import Column, Line, Measured, Rendered
from orthosparse.lab.paper._tables import table_of
from orthosparse.lab.paper._trainings import grid, start_of

__all__ = ["SEEDS", "TITLE", "experiments", "render"]

TITLE = "Test accuracy of contemporary networks, density 5 %"
_COLUMNS = _contemporary.columns_of(CONTEMPORARY[:4])
_DENSITY = 0.05
_SLOW = [Line("snip/eoi", ("SNIP", "EOI, rate 0.01"), method=both("SNIP", "eoi"))]
_SLOW_COLUMNS = _COLUMNS[1:3]


def experiments(*, smoke: bool = False) -> list[Experiment]:
    """Return the trainings of the table, then those at the lower rate."""
    table = _contemporary.experiments(_COLUMNS, _DENSITY, smoke=smoke)
    return table if smoke else table + grid(_SLOW, _SLOW_COLUMNS, _slow)


def render(rows: list[dict[str, Any]], *, smoke: bool = False) -> Rendered:
    """Return the table of accuracies and that of the lower rate."""
    book = Book(rows)

    def measure(line: Line, column: Column) -> Measured:
        return book.accuracy(_slow(line, column))

    table = _contemporary.table(book, TITLE, _COLUMNS, _DENSITY, item="contemporary_5", smoke=smoke)
    title = "SNIP with EOI at a learning rate of 0.01"
    slow = table_of(title, _SLOW_COLUMNS, _SLOW, measure, item="contemporary_5_lr_0.01", better=None)
    return Rendered(tables=[table, slow], notes=_contemporary.NOTES)


def _slow(line: Line, column: Column) -> Experiment:
    model, data = column.key.split("/")
    return start_of(line.key, model, data, _DENSITY, lr=0.01)
