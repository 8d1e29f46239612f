"""Mean and largest singular value of the input-output Jacobian of a 7-layer MLP, against sparsity (section 5.1)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from orthosparse.lab.experiments import Experiment
from orthosparse.lab.experiments.spectrum import Spectrum
from orthosparse.lab.paper._rows import RowIndex
from orthosparse.lab.paper._study import ACTIVATIONS, INITS, METHODS, SEEDS, STYLES, both, drawn, lines
from orthosparse.lab.paper._tables import Column, Line, Rendered, table_of
from orthosparse.lab.paper.statistics import summary
from orthosparse.lab.rendering.charts import draw_grid, save
from orthosparse.lab.rendering.contents import Figure, Series

__all__ = ["COMPATS", "DENSE", "SEEDS", "TITLE", "experiments", "points", "render", "save_picture"]

TITLE = "Singular values of the input-output Jacobian"
COMPATS = ("paper-code",)
_ROLES = {"linear": "eoi", "tanh": "base", "hardtanh": "ai", "relu": "sao"}
_METHODS = {name: METHODS[name] for name in ("uniform", "erk", "snip", "grasp", "synflow")}
_DENSITIES = (0.03, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
_SCORED = ("snip", "grasp", "synflow")  # distributions that have a `compat`
_STATISTICS = {"mean": "mean singular value", "max": "largest singular value"}
_TOP = 2.5  # of the paper's axis
_TABLE = 0.05
DENSE = Line("dense/orthogonal", ("Dense", "Orthogonal"), block="dense", method="Dense", ranked=False)

_NOTES = [
    "The paper shows curves without numbers: ours stand alone. Axes end at 2.5 as in the paper.",
    "10 singular values for each of the 128 images of the first training batch; seeds are averaged. SNIP and GraSP "
    "follow their definitions. SynFlow works with linear and ReLU only.",
]
_Point = tuple[str, str, str, float]  # distribution, activation, scheme, density


def experiments(*, smoke: bool = False) -> list[Experiment]:
    """Return a spectrum for each distribution, activation, density and start."""
    return [*(_small() if smoke else points())]


def points(*, ai_iterations: int | None = None, compat: str | None = None) -> list[Spectrum]:
    """Return all points of the figure; SynFlow needs an activation that is linear for positive inputs.

    Args:
        ai_iterations: of AI's descent; None: its own number, which is the paper's.
        compat: ``paper-code`` for the scores as the paper's released code computes them.

    Raises:
        ValueError: either has a value that a point would refuse.

    Example:
        >>> len(points())  # (4 x 4 + 2) x 3 x 12
        648
    """
    if ai_iterations is not None and ai_iterations < 0:
        raise ValueError(f"ai_iterations: expected 0 or more; got {ai_iterations}")
    if compat not in (None, *COMPATS):
        raise ValueError(f"compat: expected one of {', '.join(COMPATS)}; got {compat!r}")
    scored = {} if compat is None else {"compat": compat}
    return [
        Spectrum(activation, name, scheme, density, ai_iterations, scored if name in _SCORED else {})
        for name, activation, density, scheme in product(_METHODS, _ROLES, _DENSITIES, INITS)
        if name != "synflow" or activation in ("linear", "relu")
    ]


def render(rows: list[dict[str, Any]], *, smoke: bool = False) -> Rendered:
    """Return both figures for each distribution, and the means at one density."""
    index = RowIndex(rows)
    found = {_point(each): each for each in (_small() if smoke else points())}
    density = 0.5 if smoke else _TABLE
    measured = {
        (f"{name}/{scheme}", activation): index.measured(experiment, "mean")
        for (name, activation, scheme, at), experiment in found.items()
        if at == density
    }
    # At density 1 the base start is the dense network, under every distribution.
    measured |= {
        (DENSE.key, activation): index.measured(experiment, "mean")
        for (name, activation, scheme, at), experiment in found.items()
        if (name, scheme, at) == ("uniform", "base", 1.0)
    }
    columns = [Column(name, ACTIVATIONS[name], "MLP") for name in _ROLES]
    title = f"Mean singular value at density {density:g}"
    table = table_of(title, columns, [*lines(_METHODS), DENSE], measured, better=None, digits=3)
    shown = [figure for pair in zip(*_figures(index, found), strict=True) for figure in pair]
    return Rendered([table], drawn(shown), notes=_NOTES)


def save_picture(rows: list[dict[str, Any]], experiments: Sequence[Spectrum], path: Path) -> None:
    """Write both statistics of all distributions as one picture, in the format of the path's ending.

    Raises:
        ValueError: the experiments have no row.
    """
    grid = _figures(RowIndex(rows), {_point(each): each for each in experiments})
    named = [
        [replace(figure, title=label) for figure, label in zip(row, _METHODS.values(), strict=True)] for row in grid
    ]
    shown = [drawn(row) for row in named]
    if not shown[0]:
        raise ValueError("rows: expected some of these experiments; got none")
    save(draw_grid(shown), path, dpi=110)


def _figures(index: RowIndex, found: Mapping[_Point, Spectrum]) -> list[list[Figure]]:
    """Return a row of figures for each statistic, a figure for each distribution."""
    return [
        [
            Figure(f"{label}: {words}", "sparsity", words, _series(index, found, name, metric), top=_TOP, model="MLP")
            for name, label in _METHODS.items()
        ]
        for metric, words in _STATISTICS.items()
    ]


def _point(each: Spectrum) -> _Point:
    return each.distribution, each.activation, each.scheme, each.density


def _small() -> list[Spectrum]:
    few: dict[str, Any] = {"data": "digits", "samples": 8, "model_options": {"depth": 3, "width": 16}}
    return [
        Spectrum(activation, name, scheme, 0.5, iterations=20, **few)
        for name, activation, scheme in product(("erk", "synflow"), ("tanh", "relu"), INITS)
        if name != "synflow" or activation == "relu"
    ]


def _series(index: RowIndex, found: Mapping[_Point, Spectrum], name: str, metric: str) -> list[Series]:
    curves: dict[tuple[str, str], dict[float, float]] = {}
    for (distribution, activation, scheme, density), experiment in found.items():
        measured = index.measured(experiment, metric) if distribution == name else None
        mean = None if measured is None else summary(measured.values)
        if mean is not None:
            curves.setdefault((activation, scheme), {})[1 - density] = mean[0]
    return [
        Series(
            f"{ACTIVATIONS[activation]} {INITS[scheme]}",
            sorted(curve),
            [curve[x] for x in sorted(curve)],
            _ROLES[activation],
            STYLES[scheme],
            method=both(METHODS[name], scheme),
        )
        for (activation, scheme), curve in curves.items()
    ]
