"""Static starts against masks that move while training: SET and RigL, and RigL from an EOI start.

The static trainings are those of the contemporary networks.
"""

from typing import Any

from orthosparse.lab.experiments import Experiment
from orthosparse.lab.paper._rows import RowIndex
from orthosparse.lab.paper._study import SEEDS, Accuracies, both, column, drawn, pointed, start_of, tiny
from orthosparse.lab.paper._tables import Line, Rendered, Table
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


def _training(line: str, column: str, smoke: bool) -> Experiment:
    distribution, scheme, *moving = line.split("/")
    changes: dict[str, Any] = {"dynamic": moving[0] if moving else None}
    if smoke:
        return tiny(f"{distribution}/{scheme}", every=3, **changes)
    model, data = column.split("/")
    return start_of(f"{distribution}/{scheme}", model, data, 0.1, **changes)


_TABLE = Accuracies(TITLE, _COLUMNS, _LINES, _training, heads=("method", "masks"))
experiments = _TABLE.experiments


def render(rows: list[dict[str, Any]], *, smoke: bool = False) -> Rendered:
    """Return the table of accuracies, and a figure of each network instead of the paper's bar chart."""
    table = _TABLE.table(RowIndex(rows), smoke=smoke)
    return Rendered([table], drawn(_figure(table, index) for index in range(len(_COLUMNS))), notes=_NOTES)


def _figure(table: Table, index: int) -> Figure:
    """Return the means and deviations of a column, in the colours of the starts."""
    column = table.columns[index]
    series = [
        pointed(line.heads[0], {x: cells[index].ours}, line.key.split("/")[1], method=line.method)
        for x, (line, cells) in enumerate(zip(table.lines, table.cells, strict=True))
    ]
    names = tuple("\n".join(line.heads) for line in table.lines)
    return Figure(column.label, "", "test accuracy, %", series, model=column.model, names=names)
