"""Static starts against masks that move while training: SET and RigL, and RigL from an EOI start.

The static trainings are those of the contemporary networks.
"""

from dataclasses import replace
from typing import Any

from orthosparse.lab.paper._study import SEEDS, Accuracies, both, column, drawn, lines, pointed
from orthosparse.lab.paper._tables import Line, Rendered, Table
from orthosparse.lab.rendering.contents import Figure

__all__ = ["SEEDS", "TITLE", "experiments", "render"]

TITLE = "Static and dynamic sparse training, density 10 %"
_COLUMNS = [column("resnet56", "cifar10"), column("resnet32", "cifar10")]
_LINES = [
    *(replace(line, heads=(f"ERK-{line.heads[1]}", "static"), block="static") for line in lines({"erk": "ERK"})),
    Line("erk/base/set", ("SET", "dynamic"), "dynamic", "SET", fields={"scheme": "base", "dynamic": "set"}),
    Line("erk/base/rigl", ("RigL", "dynamic"), "dynamic", "RigL", fields={"scheme": "base", "dynamic": "rigl"}),
    Line("erk/eoi/rigl", ("EOI + RigL", "dynamic"), "dynamic", both("RigL", "eoi"), fields={"dynamic": "rigl"}),
]
_NOTES = [
    "The paper has a bar chart of ResNet56 without numbers; ResNet32 and EOI + RigL are ours.",
    "Every 800 steps, half of the weights, falling with a cosine. RigL stops after three quarters of the training, as "
    "its authors do; the released code continues to the end. SET continues to the end.",
]
_TABLE = Accuracies(
    TITLE,
    _COLUMNS,
    _LINES,
    {"density": 0.1},
    tiny=[line.key for line in _LINES],
    small={"resnet32/cifar10": {"every": 3}},
    heads=("method", "masks"),
    notes=_NOTES,
)
experiments = _TABLE.experiments


def render(rows: list[dict[str, Any]], *, smoke: bool = False) -> Rendered:
    """Return the table of accuracies, and a figure of each network instead of the paper's bar chart."""
    shown = _TABLE.render(rows, smoke=smoke)
    figures = [_figure(shown.tables[0], index) for index in range(len(_COLUMNS))]
    return replace(shown, figures=drawn(figures))


def _figure(table: Table, index: int) -> Figure:
    """Return the means and deviations of a column, in the colours of the starts."""
    column = table.columns[index]
    series = [
        pointed(line.heads[0], {x: cells[index].ours}, line.key.split("/")[1], method=line.method)
        for x, (line, cells) in enumerate(zip(table.lines, table.cells, strict=True))
    ]
    names = tuple("\n".join(line.heads) for line in table.lines)
    return Figure(column.label, "", "test accuracy, %", series, model=column.model, names=names)
