"""The price of high sparsity: ResNet56 from density 0.03 to 0.5."""

from typing import Any

from orthosparse.lab.experiments import Experiment
from orthosparse.lab.paper._contents import Column, Place, Rendered
from orthosparse.lab.paper._rows import RowIndex
from orthosparse.lab.paper._study import INITS, METHODS, SEEDS, both, drawn, lines, start_of, tiny, unique
from orthosparse.lab.paper._tables import table_of
from orthosparse.lab.paper.statistics import summary
from orthosparse.lab.rendering.contents import Figure, Series

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
    return unique([*_cells(smoke).values()])


def render(rows: list[dict[str, Any]], *, smoke: bool = False) -> Rendered:
    """Return the figure, of those that were trained in one setting, and the numbers of all."""
    columns, found = _columns(smoke), _cells(smoke)
    index = RowIndex(rows).comparing([*found.values()])
    measured = {place: index.accuracy(experiment) for place, experiment in found.items()}
    series = []
    for line, (init, label) in zip(_LINES, INITS.items(), strict=True):
        means = {
            float(density): summary(accuracy.values)
            for (key, density), accuracy in measured.items()
            if key == line.key and accuracy is not None and index.is_comparable(found[key, density])
        }
        points = {density: mean[0] for density, mean in means.items() if mean is not None}
        series.append(Series(label, list(points), list(points.values()), init, method=both("ERK", init)))
    figure = Figure(TITLE, "density", "test accuracy, %", drawn(series), log_x=True, model="ResNet56")
    table = table_of(TITLE, columns, _LINES, measured)
    return Rendered(tables=[table], figures=[figure] if figure.series else [], notes=_NOTES)


def _columns(smoke: bool) -> list[Column]:
    return [
        Column(f"{density:g}", f"density {density:g}", "ResNet56") for density in ((0.2, 0.4) if smoke else _DENSITIES)
    ]


def _cells(smoke: bool) -> dict[Place, Experiment]:
    return {
        (line.key, column.key): tiny(line.key, density=float(column.key))
        if smoke
        else start_of(line.key, "resnet56", "cifar10", float(column.key))
        for column in _columns(smoke)
        for line in _LINES
    }
