"""Training loss of the 7-layer MLP at sparsity 0.95, for four activations (main text and appendix)."""

from itertools import product
from typing import Any

from orthosparse.lab.experiments import Experiment
from orthosparse.lab.paper._contents import Column, Place, Rendered
from orthosparse.lab.paper._rows import RowIndex
from orthosparse.lab.paper._study import (
    ACTIVATIONS,
    INITS,
    METHODS,
    SEEDS,
    both,
    counted,
    drawn,
    lines,
    start_of,
    tiny,
    unique,
)
from orthosparse.lab.paper._tables import table_of
from orthosparse.lab.rendering.contents import Figure

__all__ = ["SEEDS", "TITLE", "experiments", "render"]

TITLE = "Training loss of the MLP on MNIST at sparsity 0.95"
_ACTIVATIONS = ("linear", "relu", "tanh", "hardtanh")
_METHODS = {name: METHODS[name] for name in ("uniform", "erk", "snip", "grasp", "synflow")}
_NOTES = [
    "The paper shows curves without numbers: ours stand alone. The table has the test accuracy after the last epoch.",
    "SynFlow works with linear and ReLU only.",
]


def experiments(*, smoke: bool = False) -> list[Experiment]:
    """Return a training for each activation, distribution and start."""
    return unique([*_cells(smoke).values()])


def render(rows: list[dict[str, Any]], *, smoke: bool = False) -> Rendered:
    """Return a figure for each activation and distribution, and the accuracies that the runs end with."""
    found = _cells(smoke)
    index = RowIndex(rows).comparing([*found.values()])
    figures = [_figure(index, found, *place) for place in product(_ACTIVATIONS, _METHODS)]
    columns = [Column(name, ACTIVATIONS[name], "MLP") for name in _ACTIVATIONS]
    measured = {place: index.accuracy(experiment) for place, experiment in found.items()}
    table = table_of("Test accuracy of the same runs, density 5 %", columns, lines(_METHODS), measured)
    return Rendered(tables=[table], figures=[figure for figure in figures if figure.series], notes=_NOTES)


def _cells(smoke: bool) -> dict[Place, Experiment]:
    activations, methods = (("linear",), ("snip",)) if smoke else (_ACTIVATIONS, tuple(_METHODS))
    return {
        (f"{method}/{init}", activation): _training(f"{method}/{init}", activation, smoke)
        for activation, method, init in product(activations, methods, INITS)
        if method != "synflow" or activation in ("linear", "relu")
    }


def _training(line: str, activation: str, smoke: bool) -> Experiment:
    own = None if activation == "relu" else activation  # ReLU is the network's own
    if smoke:
        return tiny(line, activation=own)
    return start_of(line, "mlp", "mnist", 0.05, activation=own)


def _figure(index: RowIndex, found: dict[Place, Experiment], activation: str, method: str) -> Figure:
    series = [
        counted(
            index.label(label, found[f"{method}/{init}", activation]),
            index.curve(found[f"{method}/{init}", activation], "loss"),
            init,
            method=both(METHODS[method], init),
        )
        for init, label in INITS.items()
        if (f"{method}/{init}", activation) in found
    ]
    title = f"{ACTIVATIONS[activation]}, {METHODS[method]}"
    return Figure(title, "epoch", "training loss", drawn(series), log_y=True, model="MLP")
