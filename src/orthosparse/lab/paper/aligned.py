"""EOI laid onto saliency masks: does it keep what SNIP, GraSP and SynFlow chose? A study of ours, not the paper's."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from statistics import fmean
from typing import Any

from orthosparse.lab.paper._rows import RowIndex
from orthosparse.lab.paper._study import ACTIVATIONS, METHODS, MODELS, Accuracies
from orthosparse.lab.paper._tables import Column, Line, Measurement, Place, Rendered
from orthosparse.lab.paper.ranks import ranks_of

__all__ = ["RESNETS", "SEEDS", "TITLE", "experiments", "render"]

TITLE = "EOI laid onto saliency masks"
SEEDS = (1, 2, 3)
_METHODS = {name: METHODS[name] for name in ("snip", "grasp", "synflow")}
_ALIGNED = {"align": "mask", "tap": "mask"}
_STARTS: dict[str, tuple[str, dict[str, Any]]] = {
    "base": ("Base", {"scheme": "base"}),
    "ai": ("AI", {"scheme": "ai"}),
    "eoi": ("EOI", {}),
    "random": ("EOI, random taps", {"options": {"tap": "random"}}),
    "aligned": ("EOI, aligned", {"options": _ALIGNED}),
    "core.5": ("EOI, aligned, core 0.5", {"options": {**_ALIGNED, "core": 0.5}}),
    "core.2": ("EOI, aligned, core 0.2", {"options": {**_ALIGNED, "core": 0.2}}),
    "scaled": ("Scaled", {"scheme": "scaled"}),
    "live": ("EOI, live channels", {"options": {**_ALIGNED, "align": "live"}}),
    "live.2": ("EOI, live channels, core 0.2", {"options": {**_ALIGNED, "align": "live", "core": 0.2}}),
    "permuted": ("EOI, permuted", {"options": {"start": "permuted"}}),
    "aligned.random": ("EOI, aligned, random taps", {"options": {**_ALIGNED, "tap": "random"}}),
    "live.random": ("EOI, live channels, random taps", {"options": {"align": "live", "tap": "random"}}),
}
_RANKED = ("base", "ai", "eoi", "aligned", "core.5", "core.2")
_OF_MLP = (*_RANKED, "live")
_OF_RESNETS = ("base", "eoi", "random", "aligned", "core.5")
_OF_TAPS = ("base", "eoi", "permuted", "random", "aligned", "aligned.random", "live", "live.random")
_ACTIVATIONS = ("linear", "relu", "tanh", "hardtanh")
_RESNETS = (("resnet32", 0.1), ("resnet32", 0.02), ("resnet56", 0.05))
# A third of the paper's epochs, equal for all.
_SHORT: dict[str, Any] = {"data": "cifar10", "epochs": 60, "precision": "bf16"}
_TIME = "60 epochs in bfloat16"
# The gains of each start that are trained. Base has a squared norm of 0.06 of its rank in the last stage, 0.3 in the
# second and 0.8 in the first, and EOI 1: a gain of 0.3, or of 3, gives either the other's scale in the last stage.
_GAINS = {
    "base": (1.0, 3.0),
    "scaled": (1.0,),
    "ai": (1.0,),
    "eoi": (0.3, 1.0),
    "random": (1.0,),
    "aligned": (0.3, 1.0),
    "core.5": (1.0,),
    "live": (1.0,),
    "live.2": (1.0,),
}
_NOTES = [
    "Not in the paper. An aligned start has the same orthogonal matrices as EOI, with rows, columns and taps in the "
    "order in which they overlap the mask most. A core is an orthogonal matrix of that share of a layer's count; the "
    "other entries are those of the mask, at zero.",
    "Every matrix needs as many entries as its shorter side has; SNIP and GraSP give some layers fewer, which EOI "
    "raises to that at the cost of the others. A start of live channels leaves out the rows and columns that the mask "
    "leaves out, and is orthogonal on the others.",
    "A matrix of as few entries as its shorter side has is the identity, as the paper's algorithm begins with that. A "
    "permuted start begins with a random signed permutation.",
]


def _lines(starts: Iterable[str], methods: Iterable[str] = _METHODS) -> list[Line]:
    return [
        Line(
            f"{method}/{start}",
            (_METHODS[method], label),
            block=method,
            method=f"{_METHODS[method]}|{label}",
            fields={"distribution": method, **fields},
        )
        for method in methods
        for start, (label, fields) in ((start, _STARTS[start]) for start in starts)
    ]


RESNETS = Accuracies(
    f"CIFAR-10, {_TIME}",
    [
        Column(
            f"{model}/{density:g}",
            f"{MODELS[model]}, density {density:.0%}",
            MODELS[model],
            fields={"model": model, "density": density},
        )
        for model, density in _RESNETS
    ],
    _lines(_OF_RESNETS),
    _SHORT,
)
_TAP_TABLE = Accuracies(
    f"CIFAR-10, SNIP, {_TIME}: taps and permutations where a layer has few weights for each channel",
    RESNETS.columns[1:],
    _lines(_OF_TAPS, ["snip"]),
    _SHORT,
)
_SCALE_TABLE = Accuracies(
    f"ResNet56 on CIFAR-10, SNIP, density 5 %, {_TIME}: the scale of the start",
    [Column(f"{gain:g}", f"gain {gain:g}", MODELS["resnet56"], fields={"gain": gain}) for gain in (0.3, 1.0, 3.0)],
    _lines(_GAINS, ["snip"]),
    {"model": "resnet56", "density": 0.05, **_SHORT},
    own={
        (f"snip/{start}", f"{gain:g}"): None
        for start, gain in product(_GAINS, (0.3, 1.0, 3.0))
        if gain not in _GAINS[start]
    },
)
_TABLE = Accuracies(
    "7-layer MLP on MNIST, density 5 %",
    [
        Column(name, ACTIVATIONS[name], "MLP", fields={} if name == "relu" else {"activation": name})
        for name in _ACTIVATIONS
    ],
    [*_lines(_OF_MLP, ["snip"]), *_lines((*_OF_MLP, "permuted"), ["grasp"]), *_lines(_OF_MLP, ["synflow"])],
    {"model": "mlp", "data": "mnist", "density": 0.05},
    tiny=[f"snip/{start}" for start in _OF_MLP],
    small={"linear": {}},
    own={
        **{(f"synflow/{start}", name): None for start, name in product(_OF_MLP, ("tanh", "hardtanh"))},
        # Where the first layer is at its floor, and the identity reads the first pixels, which are black.
        **{("grasp/permuted", name): None for name in ("linear", "relu", "tanh")},
    },
    notes=_NOTES,
    below=[RESNETS, _TAP_TABLE, _SCALE_TABLE],
)
experiments = _TABLE.experiments


def render(rows: Iterable[dict[str, Any]], *, smoke: bool = False) -> Rendered:
    """Return a table of the perceptron, by activation, and those of the residual networks: starts, taps, scales."""
    rows = [row for row in rows if row["seed"] in SEEDS]  # other items have more of some starts: not of all compared
    rendered = _TABLE.render(rows, smoke=smoke)
    index = RowIndex(rows)
    ranks = [
        _mean_ranks("MLP", index.accuracies(_TABLE.cells(smoke=smoke)), _RANKED),
        _mean_ranks("residual networks", index.accuracies(RESNETS.cells(smoke=smoke)), _OF_RESNETS),
    ]
    said = " ".join(filter(None, ranks))
    return replace(rendered, notes=[*rendered.notes, said] if said else rendered.notes)


def _mean_ranks(name: str, measured: Mapping[Place, Measurement | None], starts: Sequence[str]) -> str:
    """Say the mean rank of each start over the cells in which all of them have a row."""
    ranks = []
    for column, method in product(dict.fromkeys(column for _, column in measured), _METHODS):
        cells = {start: measured.get((f"{method}/{start}", column)) for start in starts}
        means = {start: fmean(cell.values) for start, cell in cells.items() if cell is not None and cell.values}
        if len(means) == len(starts):
            ranks.append(ranks_of(means))
    if not ranks:
        return ""
    by_start = {_STARTS[start][0]: fmean(each[start] for each in ranks) for start in starts}
    listed = "; ".join(f"{start}: {rank:.1f}" for start, rank in sorted(by_start.items(), key=lambda item: item[1]))
    return f"Mean rank of the starts of the {name} (1 is best), cells: {len(ranks)}. {listed}."
