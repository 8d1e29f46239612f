"""Contemporary networks at density 0.05, and SNIP with EOI at the lower rate that the paper gave it."""

from typing import Any

from orthosparse.lab.experiments import Experiment
from orthosparse.lab.paper._contents import Line, Place, Rendered
from orthosparse.lab.paper._rows import RowIndex
from orthosparse.lab.paper._study import SEEDS, both, start_of, unique
from orthosparse.lab.paper._tables import table_of
from orthosparse.lab.paper.contemporary import COLUMNS, LINES, NOTES, cells_of

__all__ = ["SEEDS", "TITLE", "experiments", "render"]

TITLE = "Test accuracy of contemporary networks, density 5 %"
_COLUMNS = COLUMNS[:4]
_SLOW = [Line("snip/eoi", ("SNIP", "EOI, rate 0.01"), method=both("SNIP", "eoi"))]
_SLOW_COLUMNS = _COLUMNS[1:3]


def experiments(*, smoke: bool = False) -> list[Experiment]:
    """Return the trainings of the table, then those at the lower rate."""
    table = unique([*cells_of(_COLUMNS, 0.05, smoke).values()])
    return table if smoke else [*table, *_slow_cells().values()]


def render(rows: list[dict[str, Any]], *, smoke: bool = False) -> Rendered:
    """Return the table of accuracies and that of the lower rate."""
    index, slow_cells = RowIndex(rows), _slow_cells()
    table = table_of(TITLE, _COLUMNS, LINES, index.accuracies(cells_of(_COLUMNS, 0.05, smoke)), item="contemporary_5")
    slow = table_of(
        "SNIP with EOI at a learning rate of 0.01",
        _SLOW_COLUMNS,
        _SLOW,
        {place: index.accuracy(experiment) for place, experiment in slow_cells.items()},
        item="contemporary_5_lr_0.01",
        better=None,
    )
    return Rendered(tables=[table, slow], notes=NOTES)


def _slow_cells() -> dict[Place, Experiment]:
    return {
        (line.key, column.key): start_of(line.key, model, data, 0.05, lr=0.01)
        for column in _SLOW_COLUMNS
        for line in _SLOW
        for model, data in [column.key.split("/")]
    }
