"""The price of high sparsity: ResNet56 from density 0.03 to 0.5."""

from functools import partial
from typing import Any

from orthosparse.lab.experiments import Experiment
from orthosparse.lab.paper._book import Book
from orthosparse.lab.paper._curves import ROLES, drawn
from orthosparse.lab.paper._names import INITS, METHODS, SEEDS, both, lines
from orthosparse.lab.paper._rendered import Column, Figure, Line, Measured, Rendered, Series
from orthosparse.lab.paper._tables import summary, table_of
from orthosparse.lab.paper._trainings import grid, start_of, tiny

__all__ = ["SEEDS", "TITLE", "experiments", "render"]

TITLE = "ResNet56 on CIFAR-10 by density"
_DENSITIES = (0.03, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5)
_LINES = lines({"erk": METHODS["erk"]})
_NOTES = [
    "The paper shows a figure without numbers, for densities from 0.03 to 0.5. At 0.1 and 0.05 the runs are those of "
    "the contemporary networks, whose tables have the paper's numbers.",
]


def experiments(*, smoke: bool = False) -> list[Experiment]:
    """Return the trainings, density after density."""
    return grid(_LINES, _columns(smoke), partial(_choose, smoke=smoke))


def render(rows: list[dict[str, Any]], *, smoke: bool = False) -> Rendered:
    """Return the figure, of those that trained alike, and the numbers of all."""
    columns = _columns(smoke)
    book = Book(rows).level(experiments(smoke=smoke))

    def measure(line: Line, place: Column) -> Measured:
        return book.accuracy(_choose(line, place, smoke=smoke))

    series = []
    for line, (init, label) in zip(_LINES, INITS.items(), strict=True):
        alike = [place for place in columns if book.is_level(_choose(line, place, smoke=smoke))]
        means = [(float(place.key), summary(measure(line, place).values)) for place in alike]
        points = [(density, mean[0]) for density, mean in means if mean is not None]
        series.append(
            Series(label, [x for x, _ in points], [y for _, y in points], ROLES[init], method=both("ERK", init))
        )
    figure = Figure(TITLE, "density", "test accuracy, %", drawn(series), log_x=True, model="ResNet56")
    table = table_of(TITLE, columns, _LINES, measure)
    return Rendered(tables=[table], figures=[figure] if figure.series else [], notes=_NOTES)


def _columns(smoke: bool) -> list[Column]:
    return [
        Column(f"{density:g}", f"density {density:g}", "ResNet56") for density in ((0.2, 0.4) if smoke else _DENSITIES)
    ]


def _choose(line: Line, place: Column, *, smoke: bool) -> Experiment:
    if smoke:
        return tiny(line.key, density=float(place.key))
    return start_of(line.key, "resnet56", "cifar10", float(place.key))
