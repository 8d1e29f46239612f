"""Networks of 1000 layers without shortcuts or normalisation, density 0.125."""

from functools import partial
from pathlib import Path
from typing import Any

from orthosparse.lab.experiments import Experiment
from orthosparse.lab.paper._rows import RowIndex
from orthosparse.lab.paper._study import (
    DENSE,
    INITS,
    METHODS,
    SEEDS,
    Accuracies,
    both,
    column,
    counted,
    drawn,
    lines,
    start_of,
    tiny,
)
from orthosparse.lab.paper._tables import Line, Rendered
from orthosparse.lab.rendering.contents import Figure
from orthosparse.registry import lookup

__all__ = ["SEEDS", "TITLE", "experiments", "render", "save_figure", "starts"]

TITLE = "Test accuracy of 1000-layer networks, density 12.5 %"
_NETWORKS = {model: column(model, data) for model, data in (("mlp1000", "mnist"), ("cnn1000", "cifar10"))}
_COLUMNS = [*_NETWORKS.values()]
_LINES = [
    *lines({name: METHODS[name] for name in ("erk", "grasp", "snip", "uniform")}),
    Line("sao/base", ("SAO", "SAO"), block="sao", method="SAO"),
    Line("sao/eoi", ("SAO", "EOI"), block="sao", method=both("SAO", "eoi")),
    DENSE[1],
]
_RELEASED = [
    Line(f"{name}/{init}", (f"{METHODS[name]} as released", label), block=name, method=both(METHODS[name], init))
    for name in ("grasp", "snip")
    for init, label in INITS.items()
]
_STARTS = {**INITS, "dense": "Dense"}
_BATCHES = {"mnist": 422, "cifar10": 352}  # of 128 in an epoch: the released GraSP looks at all of them
_TINY = {"mlp1000": {"depth": 12, "width": 16}, "cnn1000": {"depth": 8, "width": 8}}

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


def _training(line: str, column: str, smoke: bool, *, released: bool = False) -> Experiment | None:
    (model, data), (distribution, scheme) = column.split("/"), line.split("/")
    if distribution == "dense":
        return _dense(model, data, smoke)
    name = f"dense_ends/{'sao' if scheme == 'base' else 'eoi'}" if distribution == "sao" else line
    options: dict[str, Any] = {"iterations": 1000} if scheme == "ai" else {}
    if model == "cnn1000" and scheme == "eoi":
        options["center_density"] = "density"
    changes: dict[str, Any] = {"options": options, **_arithmetic(model)}
    if released:
        options["compat"] = "paper-code"
        changes |= {"score_batches": 2 if smoke else _BATCHES[data]} if distribution == "grasp" else {}
    if not smoke:
        return start_of(name, model, data, 0.125, **changes)
    if distribution == "uniform" or (scheme != "eoi" and distribution != "sao"):
        return None
    return start_of(name, model, "digits", 0.5, model_options=_TINY[model], epochs=1, **changes)


def _dense(model: str, data: str, smoke: bool) -> Experiment:
    if smoke:
        return tiny("dense/orthogonal", model_options=_TINY["mlp1000"])
    delta = {"dense_init": "delta_orthogonal"} if model == "cnn1000" else {}
    return start_of("dense/orthogonal", model, data, 1.0, **delta, **_arithmetic(model))


def _arithmetic(model: str) -> dict[str, str]:
    """Return in what products are computed, where that is not the recipe's own; weights are float32 always."""
    return {"precision": "bf16"} if model == "cnn1000" else {}


_TABLES = [
    Accuracies(TITLE, _COLUMNS, _LINES, _training, item="deep_networks"),
    Accuracies(
        "GraSP and SNIP as the released code computes them",
        _COLUMNS,
        _RELEASED,
        partial(_training, released=True),
        item="deep_networks",
    ),
]


def experiments(*, smoke: bool = False) -> list[Experiment]:
    """Return the trainings by definition, then those as released."""
    return [each for table in _TABLES for each in table.experiments(smoke=smoke)]


def render(rows: list[dict[str, Any]], *, smoke: bool = False) -> Rendered:
    """Return both tables, and how the networks learn from epoch to epoch."""
    index = RowIndex(rows)
    figures = drawn(_figure(index, model, name, smoke) for model in _NETWORKS for name in ("erk", "uniform"))
    return Rendered(
        [table.table(index, smoke=smoke) for table in _TABLES],
        [figure for figure in figures if len(figure.series) > 1],
        notes=_NOTES,
    )


def starts(model: str, distribution: str, *, smoke: bool = False) -> dict[str, Experiment]:
    """Return the trainings of one network and distribution, and the dense one, by the name of the start.

    Raises:
        ValueError: a network that is none of the item's.
    """
    column = lookup(_NETWORKS, model, "model").key
    lines = {init: f"{distribution}/{init}" for init in INITS} | {"dense": "dense/orthogonal"}
    found = {name: _training(line, column, smoke) for name, line in lines.items()}
    return {name: experiment for name, experiment in found.items() if experiment is not None}


def save_figure(rows: list[dict[str, Any]], path: Path, *, model: str = "mlp1000", distribution: str = "erk") -> None:
    """Write how the networks of one distribution learn as a picture, in the format of the path's ending.

    Raises:
        ValueError: a network that is none of the item's, or one without rows.
    """
    figure = _figure(RowIndex(rows), model, distribution, smoke=False)
    if not figure.series:
        raise ValueError(f"rows: expected some of {figure.title}; got none")
    from orthosparse.lab.rendering.charts import draw, save  # matplotlib comes along

    save(draw(figure), path)


def _figure(index: RowIndex, model: str, distribution: str, smoke: bool) -> Figure:
    """Return the accuracy after every epoch: on the test images where all have it, else on the validation images."""
    found = starts(model, distribution, smoke=smoke)
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
    column = _NETWORKS[model]
    title = f"{column.label}, {METHODS[distribution]}"
    return Figure(title, "epoch", f"{words} accuracy, %", series, top=100, bottom=0, model=column.model)
