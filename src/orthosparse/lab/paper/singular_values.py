"""Mean and largest singular value of the input-output Jacobian of a 7-layer MLP, against sparsity."""

from collections.abc import Iterator
from itertools import product
from typing import Any

from orthosparse.lab.experiments import Experiment, Spectrum
from orthosparse.lab.paper._book import Book
from orthosparse.lab.paper._curves import DASHES, drawn
from orthosparse.lab.paper._names import ACTIVATIONS, INITS, METHODS, SEEDS, both, lines
from orthosparse.lab.paper._rendered import Column, Figure, Line, Measured, Rendered, Series
from orthosparse.lab.paper._tables import summary, table_of
from orthosparse.lab.paper._trainings import unique
from orthosparse.lab.spectra import DISTRIBUTIONS, SCHEMES
from orthosparse.lab.spectra import experiments as points

__all__ = ["SEEDS", "TITLE", "experiments", "render"]

TITLE = "Singular values of the input-output Jacobian"
_ROLES = {"linear": "eoi", "tanh": "base", "hardtanh": "ai", "relu": "sao"}
_STATISTICS = {"mean": "mean singular value", "max": "largest singular value"}
_TOP = 2.5  # of the paper's axis
_TABLE = 0.05

_NOTES = [
    "The paper shows curves without numbers: ours stand alone. Axes end at 2.5 as in the paper.",
    "10 singular values for each of the 128 images of the first training batch; seeds are averaged. SNIP and GraSP "
    "follow their definitions. SynFlow goes with linear and ReLU only.",
]


def experiments(*, smoke: bool = False) -> list[Experiment]:
    """Return a spectrum for each distribution, activation, density and start."""
    return unique(experiment for *_, experiment in _all(smoke))


def render(rows: list[dict[str, Any]], *, smoke: bool = False) -> Rendered:
    """Return both figures for each distribution, and the means at one density."""
    book = Book(rows)
    figures = [
        Figure(
            f"{METHODS[name]}: {words}",
            "sparsity",
            words,
            _series(book, name, statistic, smoke),
            top=_TOP,
            model="MLP",
        )
        for name in DISTRIBUTIONS
        for statistic, words in _STATISTICS.items()
    ]
    density = 0.5 if smoke else _TABLE
    found = {(f"{d}/{s}", a): each for d, a, p, s, each in _all(smoke) if p == density}

    def measure(line: Line, column: Column) -> Measured | None:
        experiment = found.get((line.key, column.key))
        return None if experiment is None else book.measured(experiment, "mean")

    columns = [Column(name, ACTIVATIONS[name], "MLP") for name in _ROLES]
    methods = {name: METHODS[name] for name in DISTRIBUTIONS}
    title = f"Mean singular value at density {density:g}"
    table = table_of(title, columns, lines(methods), measure, better=None, digits=3)
    return Rendered(tables=[table], figures=[figure for figure in figures if figure.series], notes=_NOTES)


def _all(smoke: bool) -> Iterator[tuple[str, str, float, str, Experiment]]:
    for each in _small() if smoke else points():
        yield each.distribution, each.activation, each.density, each.scheme, each


def _small() -> Iterator[Spectrum]:
    few: dict[str, Any] = {"data": "digits", "samples": 8, "model_options": {"depth": 3, "width": 16}}
    for name, activation, scheme in product(("erk", "synflow"), ("tanh", "relu"), SCHEMES):
        if name != "synflow" or activation == "relu":
            yield Spectrum(activation, name, scheme, 0.5, iterations=20, **few)


def _series(book: Book, name: str, statistic: str, smoke: bool) -> tuple[Series, ...]:
    points: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for distribution, activation, density, scheme, experiment in _all(smoke):
        mean = summary(book.measured(experiment, statistic).values) if distribution == name else None
        if mean is not None:
            points.setdefault((activation, scheme), []).append((1 - density, mean[0]))
    return drawn(
        [
            Series(
                f"{ACTIVATIONS[activation]} {INITS[scheme]}",
                [x for x, _ in sorted(found)],
                [y for _, y in sorted(found)],
                _ROLES[activation],
                DASHES[scheme],
                method=both(METHODS[name], scheme),
            )
            for (activation, scheme), found in points.items()
        ]
    )
