"""The angle of the rotations on ResNet32: random, always 1 degree, always 80 degrees."""

import math
from typing import Any

from orthosparse.lab.experiments import Experiment
from orthosparse.lab.paper._rows import RowIndex
from orthosparse.lab.paper._study import SEEDS, Accuracies, column, counted, drawn, start_of, tiny
from orthosparse.lab.paper._tables import Line, Rendered
from orthosparse.lab.rendering.contents import Figure, Series

__all__ = ["SEEDS", "TITLE", "experiments", "render"]

TITLE = "Rotation angle of EOI on ResNet32, density 10 %"
# By line: the heading, the colour and the angle.
_ANGLES: dict[str, tuple[str, str, dict[str, float]]] = {
    "random": ("random angle", "eoi", {}),
    "small": ("small angle (1 degree)", "base", {"angle": math.pi / 180}),
    "large": ("large angle (80 degrees)", "sao", {"angle": math.pi * 80 / 180}),
}
_COLUMN = column("resnet32", "cifar10")
_LINES = [Line(name, (label,), method="EOI") for name, (label, _, _) in _ANGLES.items()]
_CURVES = {"loss": "training loss", "validation_accuracy": "validation accuracy"}
_FIRST = 20
_NOTES = [
    "The paper does not name the distribution of this study; ours is ERK, so that its random angle is the ERK EOI of "
    "the contemporary networks.",
    "The curves are the first 20 epochs, as in the paper.",
]


def _training(line: str, column: str, smoke: bool) -> Experiment:
    options = _ANGLES[line][2]
    if smoke:
        return tiny("erk/eoi", options=options)
    model, data = column.split("/")
    return start_of("erk/eoi", model, data, 0.1, options=options)


_TABLE = Accuracies(TITLE, [_COLUMN], _LINES, _training, item="angles", heads=("angle",))
experiments = _TABLE.experiments


def render(rows: list[dict[str, Any]], *, smoke: bool = False) -> Rendered:
    """Return the accuracies, and loss and validation accuracy of the first epochs."""
    found = {name: _training(name, _COLUMN.key, smoke) for name in _ANGLES}
    index = RowIndex(rows).comparing(found.values())
    figures = [
        Figure(
            f"{words}, first {_FIRST} epochs",
            "epoch",
            words,
            [_curve(index, name, experiment, curve) for name, experiment in found.items()],
            model="ResNet32",
        )
        for curve, words in _CURVES.items()
    ]
    return Rendered([_TABLE.table(index, smoke=smoke)], drawn(figures), notes=_NOTES)


def _curve(index: RowIndex, name: str, experiment: Experiment, curve: str) -> Series:
    label, role, _ = _ANGLES[name]
    return counted(index.label(label, experiment), index.curve(experiment, curve)[:_FIRST], role, method="EOI")
