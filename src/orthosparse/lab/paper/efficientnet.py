"""EfficientNet-B0 without Tiny ImageNet: the paper's starts on CIFAR-10 at 64 pixels. A stand-in, not its column."""

from typing import Any

from orthosparse.lab.experiments import Experiment
from orthosparse.lab.paper._contents import Column, Place, Rendered
from orthosparse.lab.paper._rows import RowIndex
from orthosparse.lab.paper._study import DENSE, lines, start_of, tiny, unique
from orthosparse.lab.paper._tables import table_of
from orthosparse.lab.paper.depthwise import RECIPE

__all__ = ["SEEDS", "TITLE", "experiments", "render"]

TITLE = "EfficientNet-B0 on CIFAR-10 at 64 pixels, a stand-in for Tiny ImageNet"
SEEDS = (1, 2, 3)
_COLUMN = Column("cifar10_64", "CIFAR-10 at 64 pixels", "EfficientNet")
_LINES = [*lines(), *DENSE]
_SMOKE = ("erk/base", "erk/eoi", "dense/base")
_NOTES = [
    "Not in the paper, whose EfficientNet trains on Tiny ImageNet for 120 epochs: its accuracies do not compare with "
    "these, the order of its starts may.",
    "Density 10 %, 40 epochs of 45,000 images scaled up from 32 pixels, bf16; EOI keeps the dense start of depthwise "
    "layers times the mask.",
]


def experiments(*, smoke: bool = False) -> list[Experiment]:
    """Return the 15 sparse starts and two dense ones."""
    return unique([*_cells(smoke).values()])


def render(rows: list[dict[str, Any]], *, smoke: bool = False) -> Rendered:
    """Return the table of accuracies."""
    table = table_of(TITLE, [_COLUMN], _LINES, RowIndex(rows).accuracies(_cells(smoke)))
    return Rendered(tables=[table], notes=_NOTES)


def _cells(smoke: bool) -> dict[Place, Experiment]:
    return {
        (line.key, _COLUMN.key): tiny(line.key)
        if smoke
        else start_of(line.key, "efficientnet_b0", "cifar10_64", 0.1, **RECIPE)
        for line in _LINES
        if not smoke or line.key in _SMOKE
    }
