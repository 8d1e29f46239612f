"""Seconds to the end of the first epoch, and what AI and EOI add to Base."""

from typing import Any

from orthosparse.lab.experiments import Experiment
from orthosparse.lab.experiments.init_runtime import InitRuntime
from orthosparse.lab.paper._rows import RowIndex
from orthosparse.lab.paper._study import CONTEMPORARY, METHODS, lines, unique
from orthosparse.lab.paper._tables import Measurement, Place, Rendered, table_of

TITLE = "Seconds to the end of the first epoch, density 10 %"
SEEDS = (1, 2, 3)
_COLUMNS = CONTEMPORARY[:5]
_LINES = lines(METHODS, {"base": "Base", "ai": "AI - Base", "eoi": "EOI - Base"})
_NOTES = [
    "For AI and EOI the difference to Base, seed by seed, as in the paper; machines differ, so do the seconds.",
    "The clock starts on a warm device. AI computes there, and a matrix is done where its loss no longer falls.",
    "GraSP scores one batch here, and the whole training set twice in the released code.",
    "The second table has the seconds of `sparsify` alone: distribution and start, without data, network and epoch.",
]


def experiments(*, smoke: bool = False) -> list[Experiment]:
    """Return every distribution and start of every network."""
    return unique([*_cells(smoke).values()])


def render(rows: list[dict[str, Any]], *, smoke: bool = False) -> Rendered:
    """Return the table of the paper, and the seconds of the sparse start alone."""
    index, found = RowIndex(rows), _cells(smoke)
    added = {
        (line, network): _added(index, experiment, found[f"{line.split('/')[0]}/base", network])
        for (line, network), experiment in found.items()
    }
    table = table_of(TITLE, _COLUMNS, _LINES, added, item="init_runtime", better=None)
    alone = {key: index.measured(experiment, "sparsify_seconds") for key, experiment in found.items()}
    second = table_of("Seconds of the sparse start alone", _COLUMNS, lines(), alone, better=None, digits=3)
    return Rendered([table, second], notes=_NOTES)


def _added(index: RowIndex, experiment: Experiment, base: Experiment) -> Measurement:
    """Return the seconds of a start less those of Base with the same seed; those of Base as they are."""
    own, less = _seconds(index, experiment), _seconds(index, base)
    if experiment == base:
        return Measurement(list(own.values()))
    return Measurement([own[seed] - less[seed] for seed in sorted(own.keys() & less.keys())])


def _seconds(index: RowIndex, experiment: Experiment) -> dict[int, float]:
    return {row["seed"]: row["metrics"]["seconds"] for row in index.rows(experiment)[0]}


def _cells(smoke: bool) -> dict[Place, Experiment]:
    starts = {(line.key, column.key): _start(line.key, column.key, smoke) for column in _COLUMNS for line in _LINES}
    return {place: start for place, start in starts.items() if start is not None}


def _start(line: str, column: str, smoke: bool) -> Experiment | None:
    (distribution, scheme), (model, data) = line.split("/"), column.split("/")
    if not smoke:
        return InitRuntime(model, data, distribution, scheme)
    if model != "resnet32" or distribution != "erk":
        return None
    options = {"iterations": 20} if scheme == "ai" else {}
    small: dict[str, Any] = {"density": 0.3, "options": options, "model_options": {"depth": 3, "width": 16}}
    return InitRuntime("mlp", "digits", distribution, scheme, **small)
