"""Orthogonality and time of one sparse orthogonal matrix, against size and density: EOI, SAO, AI, the released code."""

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from orthosparse.lab.experiments import Experiment
from orthosparse.lab.experiments.efficiency import Efficiency
from orthosparse.lab.paper._rows import RowIndex
from orthosparse.lab.paper._study import drawn, unique
from orthosparse.lab.paper._tables import Column, Line, Measurement, Rendered, Table, table_of
from orthosparse.lab.rendering.contents import Figure, Series

TITLE = "Time and orthogonality of one sparse orthogonal matrix"
SEEDS = (1, 2, 3)
_MODEL = "released-cost-model"  # computed, not measured
_METHODS = {
    "eoi": "EOI",
    "sao": "SAO",
    "ai": "AI, ours",
    "ai-plain": "AI",
    _MODEL: "released EOI (cost model)",
}
_ROLES = {"eoi": "eoi", "sao": "sao", "ai": "ai", "ai-plain": "base", _MODEL: "dense"}
_SIZES, _DENSITY = (16, 32, 64, 128, 256, 512, 1024, 2048), 0.0625
_LARGE, _FEW = 512, 200  # above this size, so many iterations of AI
_DENSITIES, _SIZE = (0.015625, 0.03125, 0.0625, 0.125, 0.25, 0.5), 256
_NOTES = [
    "The paper shows curves without numbers and says that EOI is circa 100 times as fast as AI.",
    "AI runs 10^4 iterations; ours stops once the loss no longer falls. Above n = 512 both were given 200 "
    "iterations, so that their times there are a lower bound.",
    "SAO takes the density nearest to the asked one that its degrees allow.",
    "The cost model is no measurement of a sampler: the released code copies the matrix and counts its non-zeros at "
    "every rotation; it is the time of one such copy and count, times the expected number of rotations.",
    "The densities of the third figure are ours: the paper does not list its own.",
]
_Point = tuple[int, float]  # size and density
_Values = dict[tuple[str, int, float], list[float]]  # of every seed, by method and point


def experiments(*, smoke: bool = False) -> list[Experiment]:
    """Return every method at every size, then at every density."""
    over_sizes, over_densities = _points(smoke)
    return unique([_one(method, *point, smoke) for point in over_sizes + over_densities for method in _METHODS])


def render(rows: list[dict[str, Any]], *, smoke: bool = False) -> Rendered:
    """Return the three figures and the times as a table, with how many times longer than EOI the others take."""
    index = RowIndex(rows)
    over_sizes, over_densities = _points(smoke)
    points, size = over_sizes + over_densities, over_densities[0][0]
    seconds, scores = (_values(index, points, metric, smoke) for metric in ("seconds", "orthogonality"))
    figures = [
        _figure("Orthogonality against size", "n", "||A'A - I||", over_sizes, scores),
        _figure("Time against size", "n", "seconds", over_sizes, seconds),
        _figure(f"Time against density, n = {size}", "density", "seconds", over_densities, seconds),
    ]
    tables = [
        _times(f"Milliseconds at density {_DENSITY:g}", {f"n = {point[0]}": point for point in over_sizes}, seconds),
        _times(f"Milliseconds at n = {size}", {f"d = {point[1]:g}": point for point in over_densities}, seconds),
    ]
    notes = _ratios(points, seconds) + _NOTES
    return Rendered(tables, drawn(figures), notes=notes)


def _points(smoke: bool) -> tuple[list[_Point], list[_Point]]:
    if smoke:
        return [(48, _DENSITY), (80, _DENSITY)], [(48, 0.125)]
    return [(size, _DENSITY) for size in _SIZES], [(_SIZE, density) for density in _DENSITIES]


def _one(method: str, size: int, density: float, smoke: bool) -> Efficiency:
    few = 20 if smoke else _FEW if size > _LARGE else None
    return Efficiency(method, size, density, iterations=few)


def _values(index: RowIndex, points: Sequence[_Point], metric: str, smoke: bool) -> _Values:
    found: _Values = {}
    for method in _METHODS:
        name = "modelled_seconds" if metric == "seconds" and method == _MODEL else metric
        for point in points:
            measured = index.measured(_one(method, *point, smoke), name)
            found[method, *point] = [] if measured is None else [*measured.values]
    return found


def _figure(title: str, x: str, y: str, points: Sequence[_Point], values: _Values) -> Figure:
    series = []
    for method, label in _METHODS.items():
        means = {
            float(size if x == "n" else density): fmean(found)
            for size, density in points
            if (found := values[method, size, density])
        }
        series.append(Series(label, list(means), list(means.values()), _ROLES[method], method=label))
    return Figure(title, x, y, series, log_x=True, log_y=True)


def _times(title: str, points: dict[str, _Point], seconds: _Values) -> Table:
    measured = {}
    for method in _METHODS:
        for label, point in points.items():
            values = [1e3 * each for each in seconds[method, *point]]
            cut = bool(values) and _is_cut(method, point[0])
            note = f"{_FEW} iterations instead of 10,000" if cut else ""
            measured[method, label] = Measurement(values, note=note)
    lines = [Line(method, (label,), method=label, ranked=method != _MODEL) for method, label in _METHODS.items()]
    columns = [Column(label, label) for label in points]
    return table_of(title, columns, lines, measured, heads=("method",), better=min, digits=3)


def _ratios(points: Sequence[_Point], seconds: _Values) -> list[str]:
    """Say how many times as long as EOI each method takes, at the least, and whether that holds everywhere."""
    said = []
    for method, label in [(method, label) for method, label in _METHODS.items() if method != "eoi"]:
        spans: dict[str, list[float]] = {"times as long as EOI": [], f"times as long at {_FEW} iterations": []}
        whole, cut = spans.values()
        for point in points:
            own, other = seconds["eoi", *point], seconds[method, *point]
            if own and other:
                (cut if _is_cut(method, point[0]) else whole).append(fmean(other) / fmean(own))
        if found := whole + cut:
            count = sum(ratio > 1 for ratio in found)
            times = [f"{min(each):,.1f} to {max(each):,.1f} {words}" for words, each in spans.items() if each]
            where = f"{count} of the {len(found)} measured points (of {len(points)})"
            said.append(f"{label} takes {', '.join(times)}; longer in {where}.")
    return said


def _is_cut(method: str, size: int) -> bool:
    """Return whether a method was given a few of its iterations only."""
    return method in ("ai", "ai-plain") and size > _LARGE
