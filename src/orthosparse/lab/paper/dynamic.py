"""Static starts against masks that move while training: SET and RigL, and RigL from an EOI start.

The static trainings are those of the contemporary networks.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from orthosparse.lab.experiments import Experiment
from orthosparse.lab.paper._rows import RowIndex
from orthosparse.lab.paper._study import SEEDS, Accuracies, both, column, drawn, lines, pointed
from orthosparse.lab.paper._tables import Cell, Column, Line, Place, Rendered, column_of
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
    index, asked = RowIndex(rows), _TABLE.cells(smoke=smoke)
    figures = [_figure(index, asked, column, column_of(shown.tables[0], column.key)) for column in _COLUMNS]
    return replace(shown, figures=drawn(figures))


def _figure(
    index: RowIndex, asked: Mapping[Place, Experiment | None], column: Column, cells: Mapping[str, Cell]
) -> Figure:
    """Return the means and deviations that were trained in one setting, in the colours of the starts."""
    found = {line.key: asked[line.key, column.key] for line in _LINES}
    index = index.comparing(found.values())
    series = [
        pointed(line.heads[0], {x: cells[line.key].ours}, line.key.split("/")[1], method=line.method)
        for x, line in enumerate(_LINES)
        if index.is_comparable(found[line.key])
    ]
    names = tuple("\n".join(line.heads) for line in _LINES)
    return Figure(column.label, "", "test accuracy, %", series, model=column.model, names=names)
