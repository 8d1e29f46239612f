"""Mean rank of Base, AI and EOI over the density distributions, from the rows of the contemporary networks."""

from collections.abc import Mapping
from dataclasses import replace
from statistics import fmean
from typing import Any

from orthosparse.lab.experiments import Experiment
from orthosparse.lab.paper._layout import seeds_text
from orthosparse.lab.paper._rows import RowIndex
from orthosparse.lab.paper._study import CONTEMPORARY, INITS, METHODS, SEEDS, drawn, lines, pointed
from orthosparse.lab.paper._tables import Cell, Column, Line, Measurement, Place, Rendered, Table, paper_number
from orthosparse.lab.paper.contemporary import TABLE
from orthosparse.lab.paper.statistics import Number, summary
from orthosparse.lab.rendering.contents import Figure

__all__ = ["SEEDS", "TITLE", "experiments", "ranked", "ranks_of", "render", "standing"]

TITLE = "Mean rank of the starts (1 is best), density 10 %"
_LINES = [Line(init, (label,), method=label) for init, label in INITS.items()]
_SPARSE = replace(TABLE, lines=lines())


def experiments(*, smoke: bool = False) -> list[Experiment]:
    """Return the sparse trainings of the contemporary networks: this item has none of its own."""
    return _SPARSE.experiments(smoke=smoke)


def render(rows: list[dict[str, Any]], *, smoke: bool = False) -> Rendered:
    """Return the mean ranks as table and figure; a distribution counts once all three starts have a row."""
    measured = RowIndex(rows).accuracies(_SPARSE.cells(smoke=smoke))
    columns = [_column(measured, column) for column in CONTEMPORARY]
    table = Table(
        title=TITLE,
        heads=("start",),
        columns=tuple(CONTEMPORARY),
        lines=tuple(_LINES),
        cells=tuple(tuple(column[index] for column in columns) for index in range(len(_LINES))),
        caption="The paper shows a bar chart; its ranks here are computed from its table of accuracies.",
    )
    notes = [_verdict(column, cells) for column, cells in zip(CONTEMPORARY, columns, strict=True)]
    return Rendered(tables=[table], figures=drawn([_figure(columns)]), notes=[*filter(None, notes)])


def ranks_of(means: dict[str, float]) -> dict[str, float]:
    """Return the rank of each name, the largest mean first; equal means share the mean of their ranks.

    Example:
        >>> ranks_of({"base": 1.0, "ai": 2.0, "eoi": 2.0})
        {'base': 3.0, 'ai': 1.5, 'eoi': 1.5}
    """
    ordered = sorted(means.values(), reverse=True)
    ranks = {mean: [rank for rank, other in enumerate(ordered, 1) if other == mean] for mean in ordered}
    return {name: fmean(ranks[mean]) for name, mean in means.items()}


def _column(measured: Mapping[Place, Measurement | None], column: Column) -> list[Cell]:
    papers, ours, notes, seeds, whole = [], [], set(), set(), True
    used: dict[str, list[dict[str, Any]]] = {init: [] for init in INITS}
    for method in METHODS:
        paper = {init: paper_number("contemporary", f"{method}/{init}", column.key) for init in INITS}
        papers += ranked(paper)
        own = {init: measured[f"{method}/{init}", column.key] or Measurement() for init in INITS}
        found = ranked({init: standing(summary(each.values), each.lost) for init, each in own.items()})
        if len({each.setting for each in own.values()}) == 1 and found:  # short trainings say nothing of long ones
            ours += found
            notes |= {each.setting for each in own.values()}
            seeds |= {len(each.rows) for each in own.values()}
            whole = whole and all(each.whole for each in own.values())
            used = {init: [*used[init], *own[init].rows] for init in INITS}
    note = ""
    if ours:
        counted = f"{len(ours)} of {len(METHODS)} distributions, {seeds_text(seeds)}"
        note = "; ".join([counted, *sorted(filter(None, notes))])
    least = min(seeds, default=0)
    cells = [Cell(_mean(papers, init), _mean(ours, init), least, note, rows=used[init], whole=whole) for init in INITS]
    complete = whole and len(ours) == len(METHODS)  # the paper's mean is over all distributions
    return [_compared(cell) if complete else cell for cell in cells]


def _compared(cell: Cell) -> Cell:
    """Return a cell with its difference, if it has both numbers."""
    if cell.ours is None or cell.paper is None:
        return cell
    return replace(cell, difference=cell.ours[0] - cell.paper[0])


def _figure(columns: list[list[Cell]]) -> Figure:
    """Return the ranks of the starts side by side for every network, the paper's hollow and ours full."""
    series = []
    for index, (init, label) in enumerate(INITS.items()):
        left = 0.24 * (index - 1)
        papers = {x + left - 0.05: cells[index].paper for x, cells in enumerate(columns)}
        ours = {x + left + 0.05: cells[index].ours for x, cells in enumerate(columns)}
        series.append(pointed(f"{label}, paper", papers, init, method=label, points="hollow"))
        series.append(pointed(f"{label}, ours", ours, init, method=label))
    names = tuple(column.label.removesuffix(")").replace(" (", "\n") for column in CONTEMPORARY)
    return Figure("Mean rank", "", "mean rank, 1 is best", series, names=names)


def ranked(means: dict[str, Number | None]) -> list[dict[str, float]]:
    """Return the ranks of the starts of a distribution, in a list; an empty one where a start has no mean."""
    whole = {name: mean[0] for name, mean in means.items() if mean is not None}
    return [ranks_of(whole)] if len(whole) == len(means) else []


def standing(mean: Number | None, lost: int) -> Number | None:
    """Return the number that ranks a start: its mean, or, if seeds diverged, one behind the means of all others.

    Example:
        >>> standing((0.9, None), 0), standing((0.9, None), 1), standing(None, 3), standing(None, 0)
        ((0.9, None), (-1.0, None), (-3.0, None), None)
    """
    return (-float(lost), None) if lost else mean


def _mean(ranks: list[dict[str, float]], init: str) -> Number | None:
    return (fmean(each[init] for each in ranks), None) if ranks else None


def _verdict(column: Column, cells: list[Cell]) -> str:
    """Say in a sentence how EOI compares with Base on a network; empty if it is not measured."""
    base, _, eoi = cells
    if base.ours is None or eoi.ours is None:
        return ""
    words = "is ahead of" if eoi.ours[0] < base.ours[0] else "is not ahead of"
    return f"{column.label}: EOI {words} Base, mean rank {eoi.ours[0]:.2f} against {base.ours[0]:.2f} ({eoi.note})."
