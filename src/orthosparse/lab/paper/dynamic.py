"""Static starts against masks that move while training: SET and RigL, and RigL from an EOI start."""

from typing import Any

from orthosparse.lab.experiments import Experiment
from orthosparse.lab.paper._contents import Column, Line, Place, Rendered, Table
from orthosparse.lab.paper._rows import RowIndex
from orthosparse.lab.paper._study import SEEDS, both, column, drawn, pointed, start_of, tiny, unique
from orthosparse.lab.paper._tables import table_of
from orthosparse.lab.rendering.contents import Figure

__all__ = ["SEEDS", "TITLE", "experiments", "render"]

TITLE = "Static and dynamic sparse training, density 10 %"
_COLUMNS = [column("resnet56", "cifar10"), column("resnet32", "cifar10")]
_LINES = [
    Line("erk/base", ("ERK-Base", "static"), block="static", method=both("ERK", "base")),
    Line("erk/ai", ("ERK-AI", "static"), block="static", method=both("ERK", "ai")),
    Line("erk/eoi", ("ERK-EOI", "static"), block="static", method=both("ERK", "eoi")),
    Line("erk/base/set", ("SET", "dynamic"), block="dynamic", method="SET"),
    Line("erk/base/rigl", ("RigL", "dynamic"), block="dynamic", method="RigL"),
    Line("erk/eoi/rigl", ("EOI + RigL", "dynamic"), block="dynamic", method=both("RigL", "eoi")),
]
_NOTES = [
    "The paper has a bar chart of ResNet56 without numbers; ResNet32 and EOI + RigL are ours.",
    "Every 800 steps, half of the weights, falling with a cosine. RigL stops after three quarters of the training, as "
    "its authors do; the released code continues to the end. SET continues to the end.",
]


def experiments(*, smoke: bool = False) -> list[Experiment]:
    """Return the trainings of ResNet56 and ResNet32; the static ones are the contemporary study's own."""
    return unique([*_cells(smoke).values()])


def render(rows: list[dict[str, Any]], *, smoke: bool = False) -> Rendered:
    """Return the table of accuracies, and a figure of each network in place of the paper's bar chart."""
    table = table_of(TITLE, _COLUMNS, _LINES, RowIndex(rows).accuracies(_cells(smoke)), heads=("method", "masks"))
    figures = [_figure(table, index) for index in range(len(_COLUMNS))]
    return Rendered(tables=[table], figures=[figure for figure in figures if figure.series], notes=_NOTES)


def _figure(table: Table, index: int) -> Figure:
    """Return the means and deviations of a column, in the colours of the starts."""
    column = table.columns[index]
    series = [
        pointed(line.heads[0], {place: cells[index].ours}, line.key.split("/")[1], method=line.method)
        for place, (line, cells) in enumerate(zip(table.lines, table.cells, strict=True))
    ]
    names = tuple("\n".join(line.heads) for line in table.lines)
    return Figure(column.label, "", "test accuracy, %", drawn(series), model=column.model, names=names)


def _cells(smoke: bool) -> dict[Place, Experiment]:
    return {(line.key, place.key): _training(line, place, smoke) for place in _COLUMNS for line in _LINES}


def _training(line: Line, place: Column, smoke: bool) -> Experiment:
    start, _, moving = line.key.partition("/")[2].partition("/")
    changes: dict[str, Any] = {"dynamic": moving or None}
    if smoke:
        return tiny(f"erk/{start}", every=3, **changes)
    model, data = place.key.split("/")
    return start_of(f"erk/{start}", model, data, 0.1, **changes)
