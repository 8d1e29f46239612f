"""EOI laid onto saliency masks: does it keep what SNIP, GraSP and SynFlow chose? A study of ours, not the paper's."""

from collections.abc import Iterable, Mapping
from itertools import product
from statistics import fmean
from typing import Any

from orthosparse.lab.experiments import Experiment
from orthosparse.lab.paper._rows import RowIndex
from orthosparse.lab.paper._study import ACTIVATIONS, METHODS, MODELS, start_of, tiny, unique
from orthosparse.lab.paper._tables import Column, Line, Measurement, Place, Rendered, table_of
from orthosparse.lab.paper.ranks import ranks_of

__all__ = ["SEEDS", "TITLE", "experiments", "render"]

TITLE = "EOI laid onto saliency masks"
SEEDS = (1, 2, 3)
_METHODS = {name: METHODS[name] for name in ("snip", "grasp", "synflow")}
_ALIGNED = {"align": "mask", "tap": "mask"}
# By line: the heading, the scheme and its options.
_STARTS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "base": ("Base", "base", {}),
    "ai": ("AI", "ai", {}),
    "eoi": ("EOI", "eoi", {}),
    "random": ("EOI, random taps", "eoi", {"tap": "random"}),
    "aligned": ("EOI, aligned", "eoi", _ALIGNED),
    "core.5": ("EOI, aligned, core 0.5", "eoi", {**_ALIGNED, "core": 0.5}),
    "core.2": ("EOI, aligned, core 0.2", "eoi", {**_ALIGNED, "core": 0.2}),
    "scaled": ("Scaled", "scaled", {}),
    "live": ("EOI, live channels", "eoi", {**_ALIGNED, "align": "live"}),
    "live.2": ("EOI, live channels, core 0.2", "eoi", {**_ALIGNED, "align": "live", "core": 0.2}),
}
_OF_MLP = ("base", "ai", "eoi", "aligned", "core.5", "core.2", "live")
_RANKED = _OF_MLP[:-1]  # live channels were tried later, in some cells
_OF_RESNETS = ("base", "eoi", "random", "aligned", "core.5")
_ACTIVATIONS = ("linear", "relu", "tanh", "hardtanh")
_RESNETS = (("resnet32", 0.1), ("resnet32", 0.02), ("resnet56", 0.05))
_EPOCHS = 60  # of the residual networks: a third of the paper's, equal for all
_SHORT: dict[str, Any] = {"epochs": _EPOCHS, "precision": "bf16"}
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
_OF_SCALES = ("resnet56", 0.05)
_NOTES = [
    "Not in the paper. An aligned start has the same orthogonal matrices as EOI, with rows, columns and taps in the "
    "order in which they overlap the mask most. A core is an orthogonal matrix of that share of a layer's count; the "
    "other entries are those of the mask, at zero.",
    "Every matrix needs as many entries as its shorter side has; SNIP and GraSP give some layers fewer, which EOI "
    "raises to that at the cost of the others. A start of live channels leaves out the rows and columns that the mask "
    "leaves out, and is orthogonal on the others.",
]


def experiments(*, smoke: bool = False) -> list[Experiment]:
    """Return the trainings of the perceptron and of the residual networks."""
    return unique([*_of_mlp(smoke).values(), *_of_resnets(smoke).values(), *_of_scales(smoke).values()])


def render(rows: list[dict[str, Any]], *, smoke: bool = False) -> Rendered:
    """Return a table of the perceptron, by activation, one of the residual networks, and one of their scales."""
    index = RowIndex(rows)
    mlp = [Column(name, ACTIVATIONS[name], "MLP") for name in _ACTIVATIONS]
    of_mlp = index.accuracies(_of_mlp(smoke))
    tables = [
        table_of("7-layer MLP on MNIST, density 5 %", mlp, _lines(_OF_MLP), of_mlp),
        table_of(
            f"CIFAR-10, {_EPOCHS} epochs in bfloat16",
            [Column(_key(*each), f"{MODELS[each[0]]}, density {each[1]:.0%}", MODELS[each[0]]) for each in _RESNETS],
            _lines(_OF_RESNETS),
            index.accuracies(_of_resnets(smoke)),
        ),
        table_of(
            f"ResNet56 on CIFAR-10, SNIP, density 5 %, {_EPOCHS} epochs in bfloat16: the scale of the start",
            [Column(f"{gain:g}", f"gain {gain:g}", MODELS[_OF_SCALES[0]]) for gain in (0.3, 1, 3)],
            _lines(tuple(_GAINS), ("snip",)),
            index.accuracies(_of_scales(smoke)),
        ),
    ]
    return Rendered(tables=tables, notes=[*_NOTES, *_mean_ranks(of_mlp, _RANKED)])


def _mean_ranks(measured: Mapping[Place, Measurement | None], starts: tuple[str, ...]) -> list[str]:
    """Say the mean rank of each start over the cells in which all of them have a row."""
    ranks = []
    for column, method in product(_ACTIVATIONS, _METHODS):
        cells = {start: measured.get((f"{method}/{start}", column)) for start in starts}
        means = {start: fmean(cell.values) for start, cell in cells.items() if cell is not None and cell.values}
        if len(means) == len(starts):
            ranks.append(ranks_of(means))
    if not ranks:
        return []
    by_start = {_STARTS[start][0]: fmean(each[start] for each in ranks) for start in starts}
    listed = "; ".join(f"{name}: {rank:.1f}" for name, rank in sorted(by_start.items(), key=lambda item: item[1]))
    return [f"Mean rank of the starts of the MLP (1 is best) over {len(ranks)} of its cells. {listed}."]


def _lines(starts: tuple[str, ...], methods: Iterable[str] = _METHODS) -> list[Line]:
    return [
        Line(
            f"{method}/{start}",
            (_METHODS[method], _STARTS[start][0]),
            block=method,
            method=f"{_METHODS[method]}|{_STARTS[start][0]}",
        )
        for method in methods
        for start in starts
    ]


def _of_mlp(smoke: bool) -> dict[Place, Experiment]:
    activations, methods = (("linear",), ("snip",)) if smoke else (_ACTIVATIONS, tuple(_METHODS))
    return {
        (f"{method}/{start}", activation): _training(
            method, start, smoke, "mlp", "mnist", 0.05, activation=None if activation == "relu" else activation
        )
        for activation, method, start in product(activations, methods, _OF_MLP)
        if method != "synflow" or activation in ("linear", "relu")
    }


def _of_resnets(smoke: bool) -> dict[Place, Experiment]:
    return {
        (f"{method}/{start}", _key(*network)): _training(
            method, start, smoke, network[0], "cifar10", network[1], **_SHORT
        )
        for network, method, start in product(() if smoke else _RESNETS, _METHODS, _OF_RESNETS)
    }


def _of_scales(smoke: bool) -> dict[Place, Experiment]:
    model, density = _OF_SCALES
    return {
        (f"snip/{start}", f"{gain:g}"): _training("snip", start, smoke, model, "cifar10", density, gain=gain, **_SHORT)
        for start, gains in ({} if smoke else _GAINS).items()
        for gain in gains
    }


def _training(method: str, start: str, smoke: bool, model: str, data: str, density: float, **own: Any) -> Experiment:
    _, scheme, options = _STARTS[start]
    line, changes = f"{method}/{scheme}", {"options": options, **own} if options else own
    return tiny(line, **changes) if smoke else start_of(line, model, data, density, **changes)


def _key(model: str, density: float) -> str:
    return f"{model}/{density:g}"
