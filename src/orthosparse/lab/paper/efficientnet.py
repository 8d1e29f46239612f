"""EfficientNet-B0 without Tiny ImageNet: the paper's starts on CIFAR-10 at 64 pixels. A stand-in, not its column."""

from orthosparse.lab.paper._study import DENSE, Accuracies, lines
from orthosparse.lab.paper._tables import Column
from orthosparse.lab.paper.depthwise import FIELDS

__all__ = ["SEEDS", "TITLE", "experiments", "render"]

TITLE = "EfficientNet-B0 on CIFAR-10 at 64 pixels, a stand-in for Tiny ImageNet"
SEEDS = (1, 2, 3)
_COLUMN = Column("cifar10_64", "CIFAR-10 at 64 pixels", "EfficientNet")
_NOTES = [
    "Not in the paper, whose EfficientNet trains on Tiny ImageNet for 120 epochs: its accuracies do not compare with "
    "these, the order of its starts may.",
    "Density 10 %, 40 epochs of 45,000 images scaled up from 32 pixels, bf16; EOI keeps the dense start of depthwise "
    "layers times the mask.",
]
_TABLE = Accuracies(
    TITLE,
    [_COLUMN],
    [*lines(), *DENSE],
    FIELDS,
    tiny=["erk/base", "erk/eoi", "dense/base"],
    small={"cifar10_64": {}},
    notes=_NOTES,
)
experiments, render = _TABLE.experiments, _TABLE.render
