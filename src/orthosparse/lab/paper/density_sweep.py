"""The price of high sparsity: ResNet56 from density 0.03 to 0.5."""

from dataclasses import replace
from typing import Any

from orthosparse.lab.paper._rows import RowIndex
from orthosparse.lab.paper._study import METHODS, SEEDS, Accuracies, drawn, lines
from orthosparse.lab.paper._tables import Column, Rendered
from orthosparse.lab.rendering.contents import Figure, Series

__all__ = ["SEEDS", "TITLE", "experiments", "render"]

TITLE = "ResNet56 on CIFAR-10 by density"
_DENSITIES = (0.03, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5)
_COLUMNS = [
    Column(f"{density:g}", f"density {density:g}", "ResNet56", fields={"density": density}) for density in _DENSITIES
]
_LINES = lines({"erk": METHODS["erk"]})
_NOTES = [
    "The paper shows a figure without numbers, for densities from 0.03 to 0.5. At 0.1 and 0.05 the runs are those of "
    "the contemporary networks, whose tables have the paper's numbers.",
]
_TABLE = Accuracies(
    TITLE,
    _COLUMNS,
    _LINES,
    {"model": "resnet56", "data": "cifar10"},
    tiny=["erk/base", "erk/ai", "erk/eoi"],
    small={"0.1": {}, "0.2": {}},
    across=True,
    notes=_NOTES,
)
experiments = _TABLE.experiments


def render(rows: list[dict[str, Any]], *, smoke: bool = False) -> Rendered:
    """Return the figure, of those that were trained in one setting, and the numbers of all."""
    cells = _TABLE.cells(smoke=smoke)
    index, shown = RowIndex(rows).comparing(cells.values()), _TABLE.render(rows, smoke=smoke)
    (table,) = shown.tables
    series = []
    for line, measured in zip(table.lines, table.cells, strict=True):
        points = {
            float(column.key): cell.ours[0]
            for column, cell in zip(table.columns, measured, strict=True)
            if cell.ours is not None and index.is_comparable(cells[line.key, column.key])
        }
        ys = list(points.values())
        series.append(Series(line.heads[1], list(points), ys, line.fields["scheme"], method=line.method))
    figure = Figure(TITLE, "density", "test accuracy, %", series, log_x=True, model="ResNet56")
    return replace(shown, figures=drawn([figure]))
