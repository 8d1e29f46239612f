"""The angle of the rotations on ResNet32: random, always 1 degree, always 80 degrees."""

import math
from typing import Any

from orthosparse.lab.experiments import Experiment
from orthosparse.lab.paper._contents import Line, Place, Rendered
from orthosparse.lab.paper._rows import RowIndex
from orthosparse.lab.paper._study import SEEDS, column, counted, drawn, start_of, tiny
from orthosparse.lab.paper._tables import table_of
from orthosparse.lab.rendering.contents import Figure

__all__ = ["SEEDS", "TITLE", "experiments", "render"]

TITLE = "Rotation angle of EOI on ResNet32, density 10 %"
_ANGLES: dict[str, dict[str, float]] = {
    "random": {},
    "small": {"angle": math.pi / 180},
    "large": {"angle": math.pi * 80 / 180},
}
_LABELS = {"random": "random angle", "small": "small angle (1 degree)", "large": "large angle (80 degrees)"}
_ROLES = {"random": "eoi", "small": "base", "large": "sao"}
_COLUMN = column("resnet32", "cifar10")
_FIRST = 20
_NOTES = [
    "The paper does not name the distribution of this study; ours is ERK, so that its random angle is the ERK EOI of "
    "the contemporary networks.",
    "The curves are the first 20 epochs, as in the paper.",
]


def experiments(*, smoke: bool = False) -> list[Experiment]:
    """Return a training for each angle."""
    return list(_cells(smoke).values())


def render(rows: list[dict[str, Any]], *, smoke: bool = False) -> Rendered:
    """Return the accuracies, and loss and validation accuracy of the first epochs."""
    found = _cells(smoke)
    lines = [Line(name, (label,), method="EOI") for name, label in _LABELS.items()]
    index = RowIndex(rows).comparing([*found.values()])
    accuracies = {place: index.accuracy(experiment) for place, experiment in found.items()}
    table = table_of(TITLE, [_COLUMN], lines, accuracies, item="angles", heads=("angle",))
    curves = {"loss": "training loss", "validation_accuracy": "validation accuracy"}
    figures = [_figure(index, found, name, words) for name, words in curves.items()]
    return Rendered(tables=[table], figures=[figure for figure in figures if figure.series], notes=_NOTES)


def _cells(smoke: bool) -> dict[Place, Experiment]:
    if smoke:
        return {(name, _COLUMN.key): tiny("erk/eoi", options=dict(options)) for name, options in _ANGLES.items()}
    return {
        (name, _COLUMN.key): start_of("erk/eoi", "resnet32", "cifar10", 0.1, options=dict(options))
        for name, options in _ANGLES.items()
    }


def _figure(index: RowIndex, found: dict[Place, Experiment], name: str, words: str) -> Figure:
    series = [
        counted(
            index.label(_LABELS[angle], experiment),
            index.curve(experiment, name),
            _ROLES[angle],
            method="EOI",
            first=_FIRST,
        )
        for (angle, _), experiment in found.items()
    ]
    return Figure(f"{words}, first {_FIRST} epochs", "epoch", words, drawn(series), model="ResNet32")
