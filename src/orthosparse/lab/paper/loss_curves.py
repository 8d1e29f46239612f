"""Training loss of the 7-layer MLP at sparsity 0.95, for four activations (main text and appendix)."""

from collections.abc import Iterator
from itertools import product
from typing import Any

from orthosparse.lab.experiments import Experiment
from orthosparse.lab.paper._book import Book
from orthosparse.lab.paper._curves import ROLES, counted, drawn
from orthosparse.lab.paper._names import ACTIVATIONS, INITS, METHODS, SEEDS, both, lines
from orthosparse.lab.paper._rendered import Column, Figure, Line, Measured, Rendered
from orthosparse.lab.paper._tables import table_of
from orthosparse.lab.paper._trainings import start_of, tiny, unique

__all__ = ["SEEDS", "TITLE", "experiments", "render"]

TITLE = "Training loss of the MLP on MNIST at sparsity 0.95"
_ACTIVATIONS = ("linear", "relu", "tanh", "hardtanh")
_ORDER = ("uniform", "erk", "snip", "grasp", "synflow")
_NOTES = [
    "The paper shows curves without numbers: ours stand alone. The table has the test accuracy after the last epoch.",
    "SynFlow goes with linear and ReLU only.",
]


def experiments(*, smoke: bool = False) -> list[Experiment]:
    """Return a training for each activation, distribution and start."""
    return unique(_all(smoke).values())


def render(rows: list[dict[str, Any]], *, smoke: bool = False) -> Rendered:
    """Return a figure for each activation and distribution, and the accuracies that the runs end with."""
    found = _all(smoke)
    book = Book(rows).level(found.values())
    figures = [_figure(book, found, *place) for place in product(_ACTIVATIONS, _ORDER)]

    def measure(line: Line, column: Column) -> Measured | None:
        experiment = found.get((column.key, line.block, line.key.split("/")[1]))
        return None if experiment is None else book.accuracy(experiment)

    columns = [Column(name, ACTIVATIONS[name], "MLP") for name in _ACTIVATIONS]
    methods = {name: METHODS[name] for name in _ORDER}
    table = table_of("Test accuracy of the same runs, density 5 %", columns, lines(methods), measure)
    return Rendered(tables=[table], figures=[figure for figure in figures if figure.series], notes=_NOTES)


def _all(smoke: bool) -> dict[tuple[str, str, str], Experiment]:
    return {
        (activation, name, scheme): _training(activation, name, scheme, smoke)
        for activation, name, scheme in _places(smoke)
    }


def _places(smoke: bool) -> Iterator[tuple[str, str, str]]:
    for place in product(("linear",) if smoke else _ACTIVATIONS, ("snip",) if smoke else _ORDER, INITS):
        if place[1] != "synflow" or place[0] in ("linear", "relu"):
            yield place


def _training(activation: str, name: str, scheme: str, smoke: bool) -> Experiment:
    own = None if activation == "relu" else activation  # ReLU is the network's own
    if smoke:
        return tiny(f"{name}/{scheme}", activation=own)
    return start_of(f"{name}/{scheme}", "mlp", "mnist", 0.05, activation=own)


def _figure(book: Book, found: dict[tuple[str, str, str], Experiment], activation: str, name: str) -> Figure:
    series = [
        counted(
            book.named(label, found[activation, name, init]),
            book.curve(found[activation, name, init], "loss"),
            ROLES[init],
            method=both(METHODS[name], init),
        )
        for init, label in INITS.items()
        if (activation, name, init) in found
    ]
    title = f"{ACTIVATIONS[activation]}, {METHODS[name]}"
    return Figure(title, "epoch", "training loss", drawn(series), log_y=True, model="MLP")
