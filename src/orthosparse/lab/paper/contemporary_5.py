"""Contemporary networks at density 0.05, and SNIP with EOI at the lower rate that the paper gave it."""

from functools import partial
from typing import Any

from orthosparse.lab.experiments import Experiment
from orthosparse.lab.paper._rows import RowIndex
from orthosparse.lab.paper._study import SEEDS, Accuracies, both, start_of
from orthosparse.lab.paper._tables import Line, Rendered
from orthosparse.lab.paper.contemporary import COLUMNS, LINES, NOTES, training

__all__ = ["SEEDS", "TITLE", "experiments", "render"]

TITLE = "Test accuracy of contemporary networks, density 5 %"


def _slow(line: str, column: str, smoke: bool) -> Experiment | None:
    model, data = column.split("/")
    return None if smoke else start_of(line, model, data, 0.05, lr=0.01)


_TABLES = [
    Accuracies(TITLE, COLUMNS[:4], LINES, partial(training, density=0.05), item="contemporary_5"),
    Accuracies(
        "SNIP with EOI at a learning rate of 0.01",
        COLUMNS[1:3],
        [Line("snip/eoi", ("SNIP", "EOI, rate 0.01"), method=both("SNIP", "eoi"))],
        _slow,
        item="contemporary_5_lr_0.01",
        better=None,
    ),
]


def experiments(*, smoke: bool = False) -> list[Experiment]:
    """Return the trainings of the table, then those at the lower rate."""
    return [each for table in _TABLES for each in table.experiments(smoke=smoke)]


def render(rows: list[dict[str, Any]], *, smoke: bool = False) -> Rendered:
    """Return the table of accuracies and that of the lower rate."""
    index = RowIndex(rows)
    return Rendered([table.table(index, smoke=smoke) for table in _TABLES], notes=NOTES)
