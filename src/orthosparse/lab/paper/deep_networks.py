"""Networks of 1000 layers without shortcuts or normalisation, density 0.125."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from orthosparse.lab.experiments import Experiment
from orthosparse.lab.paper._contents import Column, Line, Place, Rendered
from orthosparse.lab.paper._rows import RowIndex
from orthosparse.lab.paper._study import (
    INITS,
    METHODS,
    SEEDS,
    both,
    column,
    counted,
    drawn,
    lines,
    start_of,
    tiny,
    unique,
)
from orthosparse.lab.paper._tables import table_of
from orthosparse.lab.rendering.contents import Figure
from orthosparse.registry import lookup

__all__ = ["SEEDS", "TITLE", "experiments", "render", "save_figure", "starts"]

TITLE = "Test accuracy of 1000-layer networks, density 12.5 %"
_COLUMNS = [column("mlp1000", "mnist"), column("cnn1000", "cifar10")]
_LINES = [
    *lines({name: METHODS[name] for name in ("erk", "grasp", "snip", "uniform")}),
    Line("sao/base", ("SAO", "SAO"), block="sao", method="SAO"),
    Line("sao/eoi", ("SAO", "EOI"), block="sao", method=both("SAO", "eoi")),
    Line("dense/orthogonal", ("Dense", "Orthogonal"), block="dense", method="Dense", ranked=False),
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


def experiments(*, smoke: bool = False) -> list[Experiment]:
    """Return the trainings by definition, then those as released."""
    own, released = _cells(_LINES, smoke), _cells(_RELEASED, smoke, released=True)
    return unique([*own.values()]) + unique([*released.values()])


def render(rows: list[dict[str, Any]], *, smoke: bool = False) -> Rendered:
    """Return both tables, and how the networks learn from epoch to epoch."""
    index = RowIndex(rows)
    table = table_of(TITLE, _COLUMNS, _LINES, index.accuracies(_cells(_LINES, smoke)), item="deep_networks")
    accuracies = index.accuracies(_cells(_RELEASED, smoke, released=True))
    title = "GraSP and SNIP as the released code computes them"
    second = table_of(title, _COLUMNS, _RELEASED, accuracies, item="deep_networks")
    figures = [_figure(index, place, name, smoke) for place in _COLUMNS for name in ("erk", "uniform")]
    return Rendered(
        tables=[table, second], figures=[figure for figure in figures if len(figure.series) > 1], notes=_NOTES
    )


def starts(model: str, distribution: str, *, smoke: bool = False) -> dict[str, Experiment]:
    """Return the trainings of one network and distribution, and the dense one, by the name of the start.

    Raises:
        ValueError: a network that is none of the item's.
    """
    place = lookup(_networks(), model, "model")
    keys = {init: f"{distribution}/{init}" for init in INITS} | {"dense": "dense/orthogonal"}
    found = {name: _training(key, place, smoke, released=False) for name, key in keys.items()}
    return {name: experiment for name, experiment in found.items() if experiment is not None}


def save_figure(rows: list[dict[str, Any]], path: Path, *, model: str = "mlp1000", distribution: str = "erk") -> None:
    """Write how the networks of one distribution learn as a picture, in the format of the path's ending.

    Raises:
        ValueError: a network that is none of the item's, or one without rows.
    """
    figure = _figure(RowIndex(rows), lookup(_networks(), model, "model"), distribution, smoke=False)
    if not figure.series:
        raise ValueError(f"rows: expected some of {figure.title}; got none")
    from orthosparse.lab.rendering.charts import draw, save  # matplotlib comes along

    save(draw(figure), path)


def _figure(index: RowIndex, place: Column, distribution: str, smoke: bool) -> Figure:
    """Return the accuracy after every epoch: on the test images where all have it, else on the validation images."""
    found = starts(place.key.split("/")[0], distribution, smoke=smoke)
    index = index.comparing([*found.values()])
    measured = {name: each for name, each in found.items() if index.curve(each, "validation_accuracy")}
    tested = all(index.curve(each, "test_accuracy") for each in measured.values())
    curve, words = ("test_accuracy", "test") if tested else ("validation_accuracy", "validation")
    series = [
        counted(
            index.label(_STARTS[name], each),
            [None if y is None else 100 * y for y in index.curve(each, curve)],
            name,
            method=f"{METHODS[distribution]}|{_STARTS[name]}",
        )
        for name, each in measured.items()
    ]
    title = f"{place.label}, {METHODS[distribution]}"
    return Figure(title, "epoch", f"{words} accuracy, %", drawn(series), top=100, bottom=0, model=place.model)


def _networks() -> dict[str, Column]:
    return {place.key.split("/")[0]: place for place in _COLUMNS}


def _cells(asked: Sequence[Line], smoke: bool, *, released: bool = False) -> dict[Place, Experiment | None]:
    return {
        (line.key, place.key): _training(line.key, place, smoke, released=released)
        for place in _COLUMNS
        for line in asked
    }


def _training(line: str, place: Column, smoke: bool, *, released: bool) -> Experiment | None:
    model, data = place.key.split("/")
    distribution, scheme = line.split("/")
    if distribution == "dense":
        return _dense(model, data, smoke)
    name = f"dense_ends/{'sao' if scheme == 'base' else 'eoi'}" if distribution == "sao" else line
    options: dict[str, Any] = {"iterations": 1000} if scheme == "ai" else {}
    if model == "cnn1000" and scheme == "eoi":
        options["center_density"] = "density"
    changes: dict[str, Any] = {"options": options, **_arithmetic(model)}
    if released:
        options["compat"] = "paper-code"
        changes |= {"score_batches": _BATCHES[data]} if distribution == "grasp" else {}
    if not smoke:
        return start_of(name, model, data, 0.125, **changes)
    if distribution == "uniform" or (scheme != "eoi" and distribution != "sao"):
        return None
    changes |= {"score_batches": 2} if "score_batches" in changes else {}
    return start_of(name, model, "digits", 0.5, model_options=_TINY[model], epochs=1, **changes)


def _dense(model: str, data: str, smoke: bool) -> Experiment:
    if smoke:
        return tiny("dense/orthogonal", model_options=_TINY["mlp1000"])
    delta = {"dense_init": "delta_orthogonal"} if model == "cnn1000" else {}
    return start_of("dense/orthogonal", model, data, 1.0, **delta, **_arithmetic(model))


def _arithmetic(model: str) -> dict[str, str]:
    """Return in what products are computed, where that is not the recipe's own; weights are float32 always."""
    return {"precision": "bf16"} if model == "cnn1000" else {}
