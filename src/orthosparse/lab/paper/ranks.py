"""Mean rank of Base, AI and EOI over the density distributions, from the rows of the contemporary networks."""

from collections.abc import Sequence
from functools import partial
from statistics import fmean
from typing import Any

from orthosparse.lab.experiments import Experiment
from orthosparse.lab.paper import _contemporary
from orthosparse.lab.paper._book import Book, Row
from orthosparse.lab.paper._curves import ROLES, drawn, pointed
from orthosparse.lab.paper._names import CONTEMPORARY, INITS, METHODS, SEEDS
from orthosparse.lab.paper._rendered import Cell, Column, Figure, Line, Measured, Number, Rendered, Table
from orthosparse.lab.paper._tables import summary
from orthosparse.lab.paper._trainings import unique
from orthosparse.lab.paper.numbers import number

__all__ = ["SEEDS", "TITLE", "experiments", "render"]

TITLE = "Mean rank of the starts (1 is best), density 10 %"
_COLUMNS = _contemporary.columns_of(CONTEMPORARY)
_LINES = [Line(init, (label,), method=label) for init, label in INITS.items()]


def experiments(*, smoke: bool = False) -> list[Experiment]:
    """Return the sparse trainings of the contemporary networks: this item has none of its own."""
    found = _contemporary.experiments(_COLUMNS, 0.1, smoke=smoke)
    return [experiment for experiment in found if experiment.given().get("density", 1.0) < 1]


def render(rows: list[dict[str, Any]], *, smoke: bool = False) -> Rendered:
    """Return the mean ranks as table and figure; a distribution counts once all three starts have a row."""
    book = Book(rows)
    columns = [_column(book, place, smoke) for place in _COLUMNS]
    table = Table(
        title=TITLE,
        heads=("start",),
        columns=tuple(_COLUMNS),
        lines=tuple(_LINES),
        cells=tuple(tuple(column[index] for column in columns) for index in range(len(_LINES))),
        caption="The paper shows a bar chart; its ranks here are computed from its table of accuracies.",
    )
    return Rendered(tables=[table], figures=[_figure(columns)], notes=[_verdict(columns[0])])


def ranks_of(means: dict[str, float]) -> dict[str, float]:
    """Return the rank of each name, the largest mean first; equal means share the mean of their places.

    Example:
        >>> ranks_of({"base": 1.0, "ai": 2.0, "eoi": 2.0})
        {'base': 3.0, 'ai': 1.5, 'eoi': 1.5}
    """
    ordered = sorted(means.values(), reverse=True)
    places = {mean: [place for place, other in enumerate(ordered, 1) if other == mean] for mean in ordered}
    return {name: fmean(places[mean]) for name, mean in means.items()}


def _column(book: Book, place: Column, smoke: bool) -> list[Cell]:
    papers, ours, notes = [], [], set()
    used: dict[str, list[Row]] = {init: [] for init in INITS}
    chosen = partial(_contemporary.choose, density=0.1, smoke=smoke)
    book = book.level(unique(chosen(Line(f"{method}/{init}", ()), place) for method in METHODS for init in INITS))
    for method in METHODS:
        paper: dict[str, Number | None] = {}
        own: dict[str, Number | None] = {}
        rows: dict[str, Sequence[Row]] = {}
        ways, remarks = set(), set()
        for init in INITS:
            line = Line(f"{method}/{init}", ())
            paper[init] = number("contemporary", line.key, place.key)
            experiment = chosen(line, place)
            measured = Measured() if experiment is None else book.measured(experiment, "test_accuracy")
            own[init] = summary(measured.values)
            rows[init] = measured.rows
            ways.add(measured.short)
            remarks.add(measured.note)
        papers += _ranked(paper)
        if len(ways) == 1 and (ranked := _ranked(own)):  # a short training says nothing of a long one
            ours += ranked
            notes |= remarks
            used = {init: [*used[init], *rows[init]] for init in INITS}
    told = [f"{len(ours)} of {len(METHODS)} distributions", *sorted(filter(None, notes))]
    note = "; ".join(told) if ours else ""
    return [Cell(_mean(papers, init), _mean(ours, init), len(ours), note, rows=used[init]) for init in INITS]


def _figure(columns: list[list[Cell]]) -> Figure:
    """Return the ranks of the starts side by side for every network, the paper's hollow and ours full."""
    series = []
    for index, (init, label) in enumerate(INITS.items()):
        left = 0.24 * (index - 1)
        papers = {place + left - 0.05: cells[index].paper for place, cells in enumerate(columns)}
        ours = {place + left + 0.05: cells[index].ours for place, cells in enumerate(columns)}
        series.append(pointed(f"{label}, paper", papers, ROLES[init], method=label, points="hollow"))
        series.append(pointed(f"{label}, ours", ours, ROLES[init], method=label))
    names = tuple(column.label.removesuffix(")").replace(" (", "\n") for column in _COLUMNS)
    return Figure("Mean rank", "", "mean rank, 1 is best", drawn(series), names=names)


def _ranked(means: dict[str, Number | None]) -> list[dict[str, float]]:
    whole = {name: mean[0] for name, mean in means.items() if mean is not None}
    return [ranks_of(whole)] if len(whole) == len(means) else []


def _mean(ranks: list[dict[str, float]], init: str) -> Number | None:
    return (fmean(each[init] for each in ranks), None) if ranks else None


def _verdict(cells: list[Cell]) -> str:
    """Say in a sentence how EOI stands to Base on ResNet32."""
    base, _, eoi = cells
    if base.ours is None or eoi.ours is None:
        return "ResNet32: not measured yet, so there is nothing to say about EOI and Base."
    told = "is ahead of" if eoi.ours[0] < base.ours[0] else "is not ahead of"
    return f"ResNet32: EOI {told} Base, mean rank {eoi.ours[0]:.2f} against {base.ours[0]:.2f} ({eoi.note})."
