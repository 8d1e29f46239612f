"""The angle of the rotations on ResNet32: random, always 1 degree, always 80 degrees."""

import math
from dataclasses import replace
from typing import Any

from orthosparse.lab.paper._rows import RowIndex
from orthosparse.lab.paper._study import SEEDS, Accuracies, column, counted, drawn
from orthosparse.lab.paper._tables import Line, Rendered
from orthosparse.lab.rendering.contents import Figure

__all__ = ["FIRST", "SEEDS", "TITLE", "experiments", "render"]

TITLE = "Rotation angle of EOI on ResNet32, density 10 %"
# By line: the heading, the colour and the angle.
_ANGLES: dict[str, tuple[str, str, dict[str, float]]] = {
    "random": ("random angle", "eoi", {}),
    "small": ("small angle (1 degree)", "base", {"angle": math.pi / 180}),
    "large": ("large angle (80 degrees)", "sao", {"angle": math.pi * 80 / 180}),
}
_LINES = [
    Line(name, (label,), method="EOI", fields={"options": options}) for name, (label, _, options) in _ANGLES.items()
]
_CURVES = {"loss": "training loss", "validation_accuracy": "validation accuracy"}
FIRST = 20  # epochs that the paper shows
_NOTES = [
    "The paper does not name the distribution of this study; ours is ERK, so that its random angle is the ERK EOI of "
    "the contemporary networks.",
    "The curves are the first 20 epochs, as in the paper.",
]
_TABLE = Accuracies(
    TITLE,
    [column("resnet32", "cifar10")],
    _LINES,
    {"density": 0.1},
    tiny=_ANGLES,
    small={"resnet32/cifar10": {}},
    item="angles",
    heads=("angle",),
    notes=_NOTES,
)
experiments = _TABLE.experiments


def render(rows: list[dict[str, Any]], *, smoke: bool = False) -> Rendered:
    """Return the accuracies, and loss and validation accuracy of the first epochs."""
    found = experiments(smoke=smoke)
    index = RowIndex(rows).comparing(found)
    figures = []
    for curve, words in _CURVES.items():
        series = [
            counted(index.label(label, each), index.curve(each, curve)[:FIRST], role, method="EOI")
            for (label, role, _), each in zip(_ANGLES.values(), found, strict=True)
        ]
        figures.append(Figure(f"{words}, first {FIRST} epochs", "epoch", words, series, model="ResNet32"))
    return replace(_TABLE.render(rows, smoke=smoke), figures=drawn(figures))
