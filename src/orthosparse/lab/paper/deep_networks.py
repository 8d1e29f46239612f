"""Networks of 1000 layers without shortcuts or normalisation, density 0.125."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from orthosparse.lab.experiments import Experiment
from orthosparse.lab.paper._rows import RowIndex
from orthosparse.lab.paper._study import DENSE, INITS, METHODS, SEEDS, Accuracies, both, column, counted, drawn, lines
from orthosparse.lab.paper._tables import Column, Line, Place, Rendered
from orthosparse.lab.rendering.contents import Figure
from orthosparse.registry import lookup

__all__ = ["SEEDS", "TITLE", "experiments", "render", "save_figure"]

TITLE = "Test accuracy of 1000-layer networks, density 12.5 %"
_COLUMNS = [column("mlp1000", "mnist"), column("cnn1000", "cifar10", precision="bf16")]
_SAO = {"distribution": "dense_ends", "scheme": "sao"}
_LINES = [
    *lines({name: METHODS[name] for name in ("erk", "grasp", "snip", "uniform")}),
    Line("sao/base", ("SAO", "SAO"), "sao", "SAO", fields=_SAO),
    Line("sao/eoi", ("SAO", "EOI"), "sao", both("SAO", "eoi"), fields=_SAO | {"scheme": "eoi"}),
    DENSE[1],
]
_RELEASED = [
    replace(line, heads=(f"{line.heads[0]} as released", line.heads[1]))
    for line in _LINES
    if line.block in ("grasp", "snip")
]
_STARTS = {**INITS, "dense": "Dense"}
_BATCHES = {"mnist": 422, "cifar10": 352}  # of 128 images in an epoch: the released GraSP scores all of them
_TINY = {
    "mlp1000/mnist": {"model": "mlp1000", "model_options": {"depth": 12, "width": 16}},
    "cnn1000/cifar10": {"model": "cnn1000", "model_options": {"depth": 8, "width": 8}},
}

_NOTES = [
    "The lines of GraSP and SNIP follow their definitions. The second table has them as the released code computes "
    "them: GraSP keeps the smallest theta * Hg, summed over the whole training set, and SNIP takes logits for "
    "log-probabilities. The paper's numbers are the same in both.",
    "SAO: the first and the last layer dense, degree 16 of 128; EOI on the same densities.",
    "AI has 1000 iterations in both networks (the released code; the paper says so for the convolutional one only). "
    "The centre of an EOI kernel has the density of its layer.",
    "sigma_w = 1.0247, sigma_b = 0.00448; the dense convolutional network is delta-orthogonal.",
    "The convolutional network has bfloat16 products and float32 weights, the perceptron TF32 products.",
]


def _own(asked: Sequence[Line], *, released: bool = False) -> dict[Place, dict[str, Any]]:
    """Return what single cells have of their own: options of the schemes, and batches for the released GraSP."""
    found: dict[Place, dict[str, Any]] = {}
    for line, network in product(asked, _COLUMNS):
        options: dict[str, Any] = {"iterations": 1000} if line.key.endswith("/ai") else {}
        if line.key.endswith("/eoi") and network.fields["model"] == "cnn1000":
            options["center_density"] = "density"
        own: dict[str, Any] = {"options": options | ({"compat": "paper-code"} if released else {})}
        own |= {"score_batches": _BATCHES[network.fields["data"]]} if released and line.block == "grasp" else {}
        found[line.key, network.key] = own
    return found | {("dense/orthogonal", "cnn1000/cifar10"): {"dense_init": "delta_orthogonal"}}


_SECOND = Accuracies(
    "GraSP and SNIP as the released code computes them",
    _COLUMNS,
    _RELEASED,
    {"density": 0.125},
    tiny=["grasp/eoi", "snip/eoi"],
    small=_TINY,
    own=_own(_RELEASED, released=True),
    item="deep_networks",
)
_TABLE = Accuracies(
    TITLE,
    _COLUMNS,
    _LINES,
    {"density": 0.125},
    tiny=["erk/eoi", "grasp/eoi", "snip/eoi", "sao/base", "sao/eoi", "dense/orthogonal"],
    small=_TINY,
    own=_own(_LINES),
    item="deep_networks",
    notes=_NOTES,
    below=[_SECOND],
)
experiments = _TABLE.experiments


def render(rows: list[dict[str, Any]], *, smoke: bool = False) -> Rendered:
    """Return both tables, and how the networks learn from epoch to epoch."""
    index, cells = RowIndex(rows), _TABLE.cells(smoke=smoke)
    figures = [_figure(index, cells, *each) for each in product(_COLUMNS, ("erk", "uniform"))]
    shown = [figure for figure in drawn(figures) if len(figure.series) > 1]
    return replace(_TABLE.render(rows, smoke=smoke), figures=shown)


def save_figure(rows: list[dict[str, Any]], path: Path, *, model: str = "mlp1000") -> None:
    """Write how the networks with ERK learn as a picture, in the format of the path's ending.

    Raises:
        ValueError: a network that is none of the item's, or one without rows.
    """
    network = lookup({column.fields["model"]: column for column in _COLUMNS}, model, "model")
    figure = _figure(RowIndex(rows), _TABLE.cells(), network, "erk")
    if not figure.series:
        raise ValueError(f"rows: expected some of {figure.title}; got none")
    from orthosparse.lab.rendering.charts import draw, save  # matplotlib comes along

    save(draw(figure), path)


def _figure(index: RowIndex, cells: Mapping[Place, Experiment | None], network: Column, distribution: str) -> Figure:
    """Return the accuracy after every epoch: on the test images where all have it, else on the validation images."""
    keys = {init: f"{distribution}/{init}" for init in INITS} | {"dense": "dense/orthogonal"}
    found = {name: each for name, key in keys.items() if (each := cells[key, network.key]) is not None}
    index = index.comparing(found.values())
    measured = {name: each for name, each in found.items() if index.curve(each, "validation_accuracy")}
    tested = all(index.curve(each, "test_accuracy") for each in measured.values())
    curve, words = ("test_accuracy", "test") if tested else ("validation_accuracy", "validation")
    series = [
        counted(
            index.label(_STARTS[name], each),
            index.curve(each, curve, scale=100),
            name,
            method=f"{METHODS[distribution]}|{_STARTS[name]}",
        )
        for name, each in measured.items()
    ]
    title = f"{network.label}, {METHODS[distribution]}"
    return Figure(title, "epoch", f"{words} accuracy, %", series, top=100, bottom=0, model=network.model)
