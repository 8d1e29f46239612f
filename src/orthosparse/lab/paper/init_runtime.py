"""Seconds to the end of the first epoch, and what AI and EOI add to Base."""

from functools import partial
from typing import Any

from orthosparse.lab.experiments import Experiment, InitRuntime
from orthosparse.lab.paper._book import Book
from orthosparse.lab.paper._names import CONTEMPORARY, METHODS, column, lines
from orthosparse.lab.paper._rendered import Column, Line, Measured, Rendered
from orthosparse.lab.paper._tables import table_of
from orthosparse.lab.paper._trainings import grid

TITLE = "Seconds to the end of the first epoch, density 10 %"
SEEDS = (1, 2, 3)
_COLUMNS = [column(model, data) for model, data in CONTEMPORARY[:5]]
_LINES = lines(METHODS, {"base": "Base", "ai": "AI - Base", "eoi": "EOI - Base"})
_NOTES = [
    "For AI and EOI the difference to Base, seed by seed, as in the paper; machines differ, so do the seconds.",
    "The clock starts on a warm device. AI computes there, and a matrix is done where its loss no longer falls.",
    "GraSP looks at one batch here and at the whole training set, twice, in the released code.",
    "The second table has the seconds of `sparsify` alone: distribution and start, without data, network and epoch.",
]


def experiments(*, smoke: bool = False) -> list[Experiment]:
    """Return every distribution and start of every network."""
    return grid(_LINES, _COLUMNS, partial(_choose, smoke=smoke))


def render(rows: list[dict[str, Any]], *, smoke: bool = False) -> Rendered:
    """Return the table of the paper, and the seconds of the sparse start alone."""
    book = Book(rows)

    def added(line: Line, place: Column) -> Measured | None:
        own = _seconds(book, line.key, place, "seconds", smoke)
        if own is None or line.key.endswith("/base"):
            return None if own is None else Measured(list(own.values()))
        base = _seconds(book, f"{line.block}/base", place, "seconds", smoke) or {}
        return Measured([own[seed] - base[seed] for seed in sorted(own.keys() & base.keys())])

    def alone(line: Line, place: Column) -> Measured | None:
        own = _seconds(book, line.key, place, "sparsify_seconds", smoke)
        return None if own is None else Measured(list(own.values()))

    table = table_of(TITLE, _COLUMNS, _LINES, added, item="init_runtime", better=None)
    title = "Seconds of the sparse start alone"
    second = table_of(title, _COLUMNS, lines(), alone, better=None, digits=3)
    return Rendered(tables=[table, second], notes=_NOTES)


def _seconds(book: Book, line: str, place: Column, metric: str, smoke: bool) -> dict[int, float] | None:
    experiment = _choose(Line(line, ()), place, smoke=smoke)
    if experiment is None:
        return None
    return {row["seed"]: row["metrics"][metric] for row in book.rows(experiment)[0]}


def _choose(line: Line, place: Column, *, smoke: bool) -> Experiment | None:
    distribution, scheme = line.key.split("/")
    if not smoke:
        model, data = place.key.split("/")
        return InitRuntime(model, data, distribution, scheme)
    if place.model != "ResNet32" or distribution != "erk":
        return None
    options = {"iterations": 20} if scheme == "ai" else {}
    small: dict[str, Any] = {"density": 0.3, "options": options, "model_options": {"depth": 3, "width": 16}}
    return InitRuntime("mlp", "digits", distribution, scheme, **small)
