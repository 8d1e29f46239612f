"""Training loss of the 7-layer MLP at sparsity 0.95, for four activations (main text and appendix)."""

from itertools import product
from typing import Any

from orthosparse.lab.experiments import Experiment
from orthosparse.lab.paper._rows import RowIndex
from orthosparse.lab.paper._study import ACTIVATIONS, METHODS, SEEDS, Accuracies, counted, drawn, lines, start_of, tiny
from orthosparse.lab.paper._tables import Column, Line, Rendered
from orthosparse.lab.rendering.contents import Figure

__all__ = ["SEEDS", "TITLE", "experiments", "render"]

TITLE = "Training loss of the MLP on MNIST at sparsity 0.95"
_COLUMNS = [Column(name, ACTIVATIONS[name], "MLP") for name in ("linear", "relu", "tanh", "hardtanh")]
_METHODS = {name: METHODS[name] for name in ("uniform", "erk", "snip", "grasp", "synflow")}
_LINES = lines(_METHODS)
_NOTES = [
    "The paper shows curves without numbers: ours stand alone. The table has the test accuracy after the last epoch.",
    "SynFlow works with linear and ReLU only.",
]


def _training(line: str, activation: str, smoke: bool) -> Experiment | None:
    if line.startswith("synflow") and activation not in ("linear", "relu"):
        return None
    own = None if activation == "relu" else activation  # ReLU is the network's own
    if smoke:
        return tiny(line, activation=own) if line.startswith("snip") and activation == "linear" else None
    return start_of(line, "mlp", "mnist", 0.05, activation=own)


_TABLE = Accuracies("Test accuracy of the same runs, density 5 %", _COLUMNS, _LINES, _training, across=True)
experiments = _TABLE.experiments


def render(rows: list[dict[str, Any]], *, smoke: bool = False) -> Rendered:
    """Return a figure for each activation and distribution, and the accuracies that the runs end with."""
    index = RowIndex(rows).comparing(_TABLE.cells(smoke=smoke).values())
    blocks = [[line for line in _LINES if line.block == method] for method in _METHODS]
    figures = [_figure(index, column, block, smoke) for column, block in product(_COLUMNS, blocks)]
    return Rendered([_TABLE.table(index, smoke=smoke)], drawn(figures), notes=_NOTES)


def _figure(index: RowIndex, column: Column, block: list[Line], smoke: bool) -> Figure:
    """Return the loss of an activation and a distribution, from all starts."""
    found = {line: _training(line.key, column.key, smoke) for line in block}
    series = [
        counted(index.label(line.heads[1], each), index.curve(each, "loss"), line.key.split("/")[1], method=line.method)
        for line, each in found.items()
        if each is not None
    ]
    title = f"{column.label}, {block[0].heads[0]}"
    return Figure(title, "epoch", "training loss", series, log_y=True, model="MLP")
