"""Orthogonality and time of one sparse orthogonal matrix, against size and density: EOI, SAO, AI, the released code."""

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from orthosparse.lab.experiments import Efficiency, Experiment
from orthosparse.lab.paper._book import Book
from orthosparse.lab.paper._curves import drawn
from orthosparse.lab.paper._rendered import Column, Figure, Line, Measured, Rendered, Series
from orthosparse.lab.paper._tables import table_of
from orthosparse.lab.paper._trainings import unique

TITLE = "Time and orthogonality of one sparse orthogonal matrix"
SEEDS = (1, 2, 3)
_METHODS = {
    "eoi": "EOI",
    "sao": "SAO",
    "ai": "AI, ours",
    "ai-plain": "AI",
    "released-cost-model": "released EOI (cost model)",
}
_ROLES = {"eoi": "eoi", "sao": "sao", "ai": "ai", "ai-plain": "base", "released-cost-model": "dense"}
_SIZES, _DENSITY = (16, 32, 64, 128, 256, 512, 1024, 2048), 0.0625
_LARGE, _FEW = 512, 200  # above this size, so many iterations of AI
_DENSITIES, _SIZE = (0.015625, 0.03125, 0.0625, 0.125, 0.25, 0.5), 256
_NOTES = [
    "The paper shows curves without numbers and says that EOI is circa 100 times as fast as AI.",
    "AI goes through 10^4 iterations; ours stops once the loss no longer falls. Above n = 512 both were given 200 "
    "iterations, so that their times there are a lower bound.",
    "SAO takes the density nearest to the asked one that its degrees allow.",
    "The cost model is no measurement of a sampler: the released code copies the matrix and counts its non-zeros at "
    "every rotation; it is the time of one such copy and count, times the expected number of rotations.",
    "The densities of the third figure are ours: the paper does not list its own.",
]


def experiments(*, smoke: bool = False) -> list[Experiment]:
    """Return every method at every size, then at every density."""
    sizes = [(size, _DENSITY) for size in _sizes(smoke)]
    densities = [(_size(smoke), density) for density in _densities(smoke)]
    return unique(_one(method, *place, smoke) for place in sizes + densities for method in _METHODS)


def render(rows: list[dict[str, Any]], *, smoke: bool = False) -> Rendered:
    """Return the three figures and the times as a table, with how many times longer than EOI the others take."""
    book = Book(rows)
    sizes, densities, size = _sizes(smoke), _densities(smoke), _size(smoke)
    over_sizes = [(float(n), n, _DENSITY) for n in sizes]
    over_densities = [(density, size, density) for density in densities]
    figures = [
        _figure(book, "Orthogonality against size", "n", "||A'A - I||", over_sizes, "orthogonality", smoke),
        _figure(book, "Time against size", "n", "seconds", over_sizes, "seconds", smoke),
        _figure(book, f"Time against density, n = {size}", "density", "seconds", over_densities, "seconds", smoke),
    ]
    titles = (f"Milliseconds at density {_DENSITY:g}", f"Milliseconds at n = {size}")
    places = ([(f"n = {n}", n, _DENSITY) for n in sizes], [(f"d = {d:g}", size, d) for d in densities])
    tables = [_times(book, title, where, smoke) for title, where in zip(titles, places, strict=True)]
    ratios = _ratios(book, [(n, _DENSITY) for n in sizes] + [(size, d) for d in densities], smoke)
    return Rendered(tables=tables, figures=[figure for figure in figures if figure.series], notes=ratios + _NOTES)


def _one(method: str, size: int, density: float, smoke: bool) -> Efficiency:
    few = 20 if smoke else _FEW if size > _LARGE else None
    return Efficiency(method, size, density, iterations=few)


def _sizes(smoke: bool) -> tuple[int, ...]:
    return (48, 80) if smoke else _SIZES


def _densities(smoke: bool) -> tuple[float, ...]:
    return (0.125,) if smoke else _DENSITIES


def _size(smoke: bool) -> int:
    return 48 if smoke else _SIZE


def _value(book: Book, method: str, size: int, density: float, metric: str, smoke: bool) -> list[float]:
    name = "modelled_seconds" if metric == "seconds" and method == "released-cost-model" else metric
    rows, _ = book.rows(_one(method, size, density, smoke))
    return [row["metrics"][name] for row in rows if row["metrics"].get(name) is not None]


def _figure(
    book: Book, title: str, x: str, y: str, places: Sequence[tuple[float, int, float]], metric: str, smoke: bool
) -> Figure:
    series = []
    for method, label in _METHODS.items():
        found = [(at, _value(book, method, size, density, metric, smoke)) for at, size, density in places]
        points = [(at, fmean(values)) for at, values in found if values]
        series.append(Series(label, [at for at, _ in points], [y for _, y in points], _ROLES[method], method=label))
    return Figure(title, x, y, drawn(series), log_x=True, log_y=True)


def _times(book: Book, title: str, places: Sequence[tuple[str, int, float]], smoke: bool) -> Any:
    where = {label: (size, density) for label, size, density in places}

    def measure(line: Line, column: Column) -> Measured:
        values = [1e3 * each for each in _value(book, line.key, *where[column.key], "seconds", smoke)]
        cut = values and _is_cut(line.key, where[column.key][0])
        return Measured(values, note=f"{_FEW} iterations instead of 10,000" if cut else "")

    lines = [Line(method, (label,), method=label) for method, label in _METHODS.items()]
    columns = [Column(label, label) for label in where]
    return table_of(title, columns, lines, measure, heads=("method",), better=min, digits=3)


def _ratios(book: Book, places: Sequence[tuple[int, float]], smoke: bool) -> list[str]:
    """Say how many times as long as EOI each method takes, at the least, and whether that holds everywhere."""
    said = []
    for method, label in [(method, label) for method, label in _METHODS.items() if method != "eoi"]:
        spans: dict[str, list[float]] = {"times as long as EOI": [], f"times as long at {_FEW} iterations": []}
        whole, cut = spans.values()
        for size, density in places:
            own = _value(book, "eoi", size, density, "seconds", smoke)
            other = _value(book, method, size, density, "seconds", smoke)
            if own and other:
                (cut if _is_cut(method, size) else whole).append(fmean(other) / fmean(own))
        if found := whole + cut:
            count = sum(ratio > 1 for ratio in found)
            times = [f"{min(each):,.1f} to {max(each):,.1f} {words}" for words, each in spans.items() if each]
            where = f"{count} of the {len(found)} measured places (of {len(places)})"
            said.append(f"{label} takes {', '.join(times)}; longer in {where}.")
    return said


def _is_cut(method: str, size: int) -> bool:
    """Whether a method was given a few of its iterations only."""
    return method in ("ai", "ai-plain") and size > _LARGE
