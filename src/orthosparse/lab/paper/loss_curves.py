"""Training loss of the 7-layer MLP at sparsity 0.95, for four activations (main text and appendix)."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from typing import Any

from orthosparse.lab.experiments import Experiment
from orthosparse.lab.paper._rows import RowIndex, early_losses
from orthosparse.lab.paper._study import ACTIVATIONS, METHODS, SEEDS, Accuracies, counted, drawn, lines
from orthosparse.lab.paper._tables import Column, Measurement, Place, Rendered, table_of
from orthosparse.lab.rendering.contents import Figure

__all__ = ["EARLY", "SEEDS", "TITLE", "experiments", "render"]

TITLE = "Training loss of the MLP on MNIST at sparsity 0.95"
EARLY = 10  # epochs that count as the beginning
_COLUMNS = [
    Column(name, ACTIVATIONS[name], "MLP", fields={"activation": None if name == "relu" else name})  # ReLU is its own
    for name in ("linear", "relu", "tanh", "hardtanh")
]
_METHODS = {name: METHODS[name] for name in ("uniform", "erk", "snip", "grasp", "synflow")}
_LINES = lines(_METHODS)
_NOTES = [
    "The paper shows curves without numbers: ours stand alone. The tables have the test accuracy after the last epoch "
    "and the training loss of the first ones.",
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
    accuracies = _TABLE.render(rows, smoke=smoke)
    losses = {place: _early(index.measured(each, "test_accuracy")) for place, each in cells.items()}
    title = f"Mean training loss of the first {EARLY} epochs, density 5 %"
    table = table_of(title, _COLUMNS, _LINES, losses, better=min, digits=3)
    return replace(accuracies, tables=[*accuracies.tables, table], figures=drawn(figures))


def _early(measured: Measurement | None) -> Measurement | None:
    return None if measured is None else replace(measured, values=[*early_losses(measured.rows, EARLY).values()])


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
