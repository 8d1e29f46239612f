"""The angle of the rotations on ResNet32: random, always 1 degree, always 80 degrees."""

import math
from typing import Any

from orthosparse.lab.experiments import Experiment
from orthosparse.lab.paper._book import Book
from orthosparse.lab.paper._curves import counted, drawn
from orthosparse.lab.paper._names import SEEDS, column
from orthosparse.lab.paper._rendered import Column, Figure, Line, Measured, Rendered
from orthosparse.lab.paper._tables import table_of
from orthosparse.lab.paper._trainings import start_of, tiny

__all__ = ["SEEDS", "TITLE", "experiments", "render"]

TITLE = "Rotation angle of EOI on ResNet32, density 10 %"
_ANGLES: dict[str, dict[str, float]] = {
    "random": {},
    "small": {"angle": math.pi / 180},
    "large": {"angle": math.pi * 80 / 180},
}
_LABELS = {"random": "random angle", "small": "small angle (1 degree)", "large": "large angle (80 degrees)"}
_ROLES = {"random": "eoi", "small": "base", "large": "sao"}
_FIRST = 20
_NOTES = [
    "The paper does not name the distribution of this study; ours is ERK, so that its random angle is the ERK EOI of "
    "the contemporary networks.",
    "The curves are the first 20 epochs, as in the paper.",
]


def experiments(*, smoke: bool = False) -> list[Experiment]:
    """Return a training for each angle."""
    return list(_all(smoke).values())


def render(rows: list[dict[str, Any]], *, smoke: bool = False) -> Rendered:
    """Return the accuracies, and loss and validation accuracy of the first epochs."""
    found = _all(smoke)
    book = Book(rows).level(found.values())

    def measure(line: Line, place: Column) -> Measured:
        del place  # one network
        return book.accuracy(found[line.key])

    lines = [Line(name, (label,), method="EOI") for name, label in _LABELS.items()]
    columns = [column("resnet32", "cifar10")]
    table = table_of(TITLE, columns, lines, measure, item="angles", heads=("angle",))
    curves = {"loss": "training loss", "validation_accuracy": "validation accuracy"}
    figures = [_figure(book, found, name, words) for name, words in curves.items()]
    return Rendered(tables=[table], figures=[figure for figure in figures if figure.series], notes=_NOTES)


def _all(smoke: bool) -> dict[str, Experiment]:
    if smoke:
        return {name: tiny("erk/eoi", options=dict(options)) for name, options in _ANGLES.items()}
    return {
        name: start_of("erk/eoi", "resnet32", "cifar10", 0.1, options=dict(options))
        for name, options in _ANGLES.items()
    }


def _figure(book: Book, found: dict[str, Experiment], name: str, words: str) -> Figure:
    series = [
        counted(
            book.named(label, found[angle]), book.curve(found[angle], name), _ROLES[angle], method="EOI", first=_FIRST
        )
        for angle, label in _LABELS.items()
    ]
    return Figure(f"{words}, first {_FIRST} epochs", "epoch", words, drawn(series), model="ResNet32")
