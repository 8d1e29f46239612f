"""Training loss of the 7-layer MLP at sparsity 0.95, for four activations (main text and appendix)."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from typing import Any

from orthosparse.lab.experiments import Experiment
from orthosparse.lab.paper._rows import RowIndex
from orthosparse.lab.paper._study import ACTIVATIONS, METHODS, SEEDS, Accuracies, counted, drawn, lines
from orthosparse.lab.paper._tables import Column, Place, Rendered
from orthosparse.lab.rendering.contents import Figure

__all__ = ["SEEDS", "TITLE", "experiments", "render"]

TITLE = "Training loss of the MLP on MNIST at sparsity 0.95"
_COLUMNS = [
    Column(name, ACTIVATIONS[name], "MLP", fields={"activation": None if name == "relu" else name})  # ReLU is its own
    for name in ("linear", "relu", "tanh", "hardtanh")
]
_METHODS = {name: METHODS[name] for name in ("uniform", "erk", "snip", "grasp", "synflow")}
_LINES = lines(_METHODS)
_NOTES = [
    "The paper shows curves without numbers: ours stand alone. The table has the test accuracy after the last epoch.",
    "SynFlow works with linear and ReLU only.",
]
_TABLE = Accuracies(
    "Test accuracy of the same runs, density 5 %",
    _COLUMNS,
    _LINES,
    {"model": "mlp", "data": "mnist", "density": 0.05},
    tiny=["snip/base", "snip/ai", "snip/eoi"],
    small={"linear": {}},
    own=dict.fromkeys(product(["synflow/base", "synflow/ai", "synflow/eoi"], ["tanh", "hardtanh"])),
    across=True,
    notes=_NOTES,
)
experiments = _TABLE.experiments


def render(rows: list[dict[str, Any]], *, smoke: bool = False) -> Rendered:
    """Return a figure for each activation and distribution, and the accuracies that the runs end with."""
    cells = _TABLE.cells(smoke=smoke)
    index = RowIndex(rows).comparing(cells.values())
    figures = [_figure(index, cells, column, method) for column, method in product(_COLUMNS, _METHODS)]
    return replace(_TABLE.render(rows, smoke=smoke), figures=drawn(figures))


def _figure(index: RowIndex, cells: Mapping[Place, Experiment | None], column: Column, method: str) -> Figure:
    """Return the loss of an activation and a distribution, from all starts."""
    found = [(line, cells[line.key, column.key]) for line in _LINES if line.block == method]
    series = [
        counted(index.label(line.heads[1], each), index.curve(each, "loss"), line.fields["scheme"], method=line.method)
        for line, each in found
        if each is not None
    ]
    title = f"{column.label}, {METHODS[method]}"
    return Figure(title, "epoch", "training loss", series, log_y=True, model="MLP")
