"""Contemporary networks at density 0.10: six networks, five distributions, three starts, and the dense ones."""

from collections.abc import Sequence
from typing import Any

from orthosparse.lab.experiments import Experiment
from orthosparse.lab.paper._contents import Column, Place, Rendered
from orthosparse.lab.paper._rows import RowIndex
from orthosparse.lab.paper._study import CONTEMPORARY, DENSE, SEEDS, column, lines, start_of, tiny, unique
from orthosparse.lab.paper._tables import table_of

__all__ = ["COLUMNS", "LINES", "NOTES", "SEEDS", "TITLE", "cells_of", "experiments", "render"]

TITLE = "Test accuracy of contemporary networks, density 10 %"
COLUMNS = [column(model, data) for model, data in CONTEMPORARY]
LINES = [*lines(), *DENSE]
_SMOKE = ("erk/base", "erk/ai", "erk/eoi", "dense/base")
_MARKS = (
    "Marks follow the means. The paper marks AI (52.70) as EfficientNet's best with SynFlow, where its Base has 53.19."
)

NOTES = [
    "Masks have exact counts, the same for all starts of a seed; the released code draws every entry at random.",
    "GraSP keeps the largest theta * Hg, as its authors define it, on one batch of 128 images; the released code keeps "
    "the smallest (its VGG-16 Base and AI of 33 % may come from that), summed over the whole training set twice. "
    "Both forms stand side by side for the 1000-layer networks.",
    "SynFlow scores the logits; the released code scores log-probabilities.",
    "Validation images are not augmented. For CIFAR-100 a tenth of the training images is held out; the released code "
    "trains on all of them.",
    "Layers with too few weights for an orthogonal matrix get as many as it needs, taken from the other layers.",
    "TF32 products on a GPU; test accuracy after the last epoch, as in the paper.",
]


def experiments(*, smoke: bool = False) -> list[Experiment]:
    """Return the 15 sparse starts and two dense ones of every network, network after network."""
    return unique([*cells_of(COLUMNS, 0.1, smoke).values()])


def render(rows: list[dict[str, Any]], *, smoke: bool = False) -> Rendered:
    """Return the table of accuracies."""
    accuracies = RowIndex(rows).accuracies(cells_of(COLUMNS, 0.1, smoke))
    table = table_of(TITLE, COLUMNS, LINES, accuracies, item="contemporary")
    return Rendered(tables=[table], notes=[_MARKS, *NOTES])


def cells_of(columns: Sequence[Column], density: float, smoke: bool) -> dict[Place, Experiment | None]:
    """Return the trainings of the study at one density, by line and column."""
    found: dict[Place, Experiment | None] = {}
    for place in columns:
        model, data = place.key.split("/")
        for line in LINES:
            if smoke:
                wanted = line.key in _SMOKE and place.model == "ResNet32"
                found[line.key, place.key] = tiny(line.key, density=2 * density) if wanted else None
            else:
                found[line.key, place.key] = start_of(line.key, model, data, density)
    return found
