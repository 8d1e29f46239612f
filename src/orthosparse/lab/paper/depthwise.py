"""EfficientNet-B0 from each rule of EOI for depthwise layers: a study of ours, not the paper's."""

from typing import Any

from orthosparse.lab.experiments import Experiment
from orthosparse.lab.paper._study import METHODS, Accuracies, start_of, tiny
from orthosparse.lab.paper._tables import Column, Line

__all__ = ["RECIPE", "SEEDS", "TITLE", "experiments", "render"]

TITLE = "EfficientNet-B0 on CIFAR-10 at 64 pixels, by the rule for depthwise layers"
SEEDS = (1, 2, 3)
# A third of the paper's epochs, and twice its batch at twice its rate: half of the steps of each.
RECIPE: dict[str, Any] = {"epochs": 40, "batch": 256, "lr": 0.02, "precision": "bf16"}
_COLUMNS = [Column(name, METHODS[name], "EfficientNet") for name in ("erk", "uniform")]
# By line: the heading, the scheme and its options.
_STARTS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "base": ("Base", "base", {}),
    "keep": ("EOI, depthwise kept", "eoi", {}),
    "center": ("EOI, depthwise at the centre", "eoi", {"depthwise": "center"}),
    "shift": ("EOI, depthwise at a random tap", "eoi", {"depthwise": "shift"}),
    "paper-code": ("EOI, depthwise as in the released code", "eoi", {"depthwise": "paper-code"}),
}
_LINES = [Line(key, (label,), method=label) for key, (label, _, _) in _STARTS.items()]
_NOTES = [
    "Not in the paper. Kept depthwise layers have their dense start times the mask; at the centre or at a random tap "
    "each channel has one weight of 1 or -1; the released code takes a depthwise layer for one column of a matrix and "
    "leaves most of its channels at zero, in front of a batch norm.",
    "Density 10 %, 40 epochs of 45,000 images scaled up from 32 pixels, the same recipe for all, bf16.",
]


def _training(line: str, distribution: str, smoke: bool) -> Experiment | None:
    _, scheme, options = _STARTS[line]
    own: dict[str, Any] = {"options": options} if options else {}
    start = f"{distribution}/{scheme}"
    if smoke:
        return tiny(start, **own) if distribution == "erk" else None
    return start_of(start, "efficientnet_b0", "cifar10_64", 0.1, **RECIPE, **own)


_TABLE = Accuracies(TITLE, _COLUMNS, _LINES, _training, heads=("start",), notes=_NOTES)
experiments, render = _TABLE.experiments, _TABLE.render
