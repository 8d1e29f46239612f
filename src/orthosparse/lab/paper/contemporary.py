"""Contemporary networks at density 0.10: six networks, five distributions, three starts, and the dense ones."""

from typing import Any

from orthosparse.lab.experiments import Experiment
from orthosparse.lab.paper import _contemporary
from orthosparse.lab.paper._book import Book
from orthosparse.lab.paper._names import CONTEMPORARY, SEEDS
from orthosparse.lab.paper._rendered import Rendered

__all__ = ["SEEDS", "TITLE", "experiments", "render"]

TITLE = "Test accuracy of contemporary networks, density 10 %"
_COLUMNS = _contemporary.columns_of(CONTEMPORARY)
_DENSITY = 0.1
_MARKS = (
    "Marks follow the means. The paper marks AI (52.70) as EfficientNet's best with SynFlow, where its Base has 53.19."
)


def experiments(*, smoke: bool = False) -> list[Experiment]:
    """Return the trainings, network after network."""
    return _contemporary.experiments(_COLUMNS, _DENSITY, smoke=smoke)


def render(rows: list[dict[str, Any]], *, smoke: bool = False) -> Rendered:
    """Return the table of accuracies."""
    table = _contemporary.table(Book(rows), TITLE, _COLUMNS, _DENSITY, item="contemporary", smoke=smoke)
    return Rendered(tables=[table], notes=[_MARKS, *_contemporary.NOTES])
