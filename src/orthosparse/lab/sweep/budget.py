"""Sweeps in a given time: how long a run will take, judged by those before it, and what still fits."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from operator import itemgetter
from time import monotonic
from typing import Any

import numpy as np

from orthosparse.lab.experiments import Experiment, experiment_of
from orthosparse.lab.experiments.training import COSTS_OF
from orthosparse.lab.signals import stopped_after
from orthosparse.lab.sweep.display import Display
from orthosparse.lab.sweep.pairs import Outcome, Pair, Perform
from orthosparse.lab.sweep.rows import problem_of
from orthosparse.lab.sweep.runner import Summary, run
from orthosparse.lab.sweep.store import Store, together_of

_UNITS = {"h": 3600, "m": 60, "s": 1}


def seconds_of(text: str) -> float:
    """Return the seconds of a time like ``25m``, ``1h30m`` or ``90s``.

    Raises:
        ValueError: it is not one.

    Example:
        >>> seconds_of("25m"), seconds_of("1h30m")
        (1500.0, 5400.0)
    """
    parts = re.fullmatch(r"(?=.)(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", text.strip())
    total = (
        sum(int(part or 0) * unit for part, unit in zip(parts.groups(), _UNITS.values(), strict=True)) if parts else 0
    )
    if total <= 0:
        raise ValueError(f"budget: expected a time like 25m, 1h30m or 90s; got {text!r}")
    return float(total)


class Estimates:
    """Times of runs to come: their `cost`, scaled by what the newest runs of the same kind took.

    Those are runs of the same network at any depth (resnet32, resnet56) on the same data; where there are none, all
    runs of the same kind of experiment, unless the costs are those of this device anyway. The newest are those of the
    commit that made the latest row. A network in a stack has its share of the time of all. Stacks are judged by stacks
    and single runs by single runs, if there are any.
    """

    def __init__(self) -> None:
        self._newest: dict[tuple[bool, tuple[str, ...]], _Total] = {}

    def learn(self, rows: Iterable[dict[str, Any]], device: str) -> None:
        """Learn from the rows that were made on a device; what this version cannot read is passed over."""
        own = sorted((row for row in rows if row["device"] == device and not problem_of(row)), key=itemgetter("time"))
        for row, seconds in zip(own, _seconds(own), strict=True):
            if (experiment := _known(row["key"])) is not None:
                self.add(experiment, row, seconds)

    def add(self, experiment: Experiment, row: dict[str, Any], seconds: float) -> None:
        """Learn from a row, newer than all others, of a run that took so many seconds; nothing if it diverged early."""
        if row["metrics"].get("diverged"):
            return
        stacked = "together" in row["metrics"]
        for group in _groups(experiment)[: 1 if row["device"] == COSTS_OF else 2]:
            total = self._newest.get((stacked, group))
            if total is None or total.commit != row["commit"]:
                total = self._newest[stacked, group] = _Total(row["commit"])
            # Sums, not a mean of ratios: what takes long counts for more.
            total.seconds += seconds / together_of(row)
            total.cost += _cost(experiment, stacked)

    def seconds(self, experiments: Iterable[Experiment], *, stacked: bool = False) -> float:
        """Return the seconds that experiments are expected to take, in one stack or one after the other."""
        return sum(self._one(experiment, stacked) for experiment in experiments)

    def _one(self, experiment: Experiment, stacked: bool) -> float:
        for group in _groups(experiment):
            for measured in (stacked, not stacked):
                total = self._newest.get((measured, group))
                if total is not None and total.cost > 0:
                    return total.seconds / total.cost * _cost(experiment, measured)
        return _cost(experiment, stacked)


@dataclass
class _Total:
    """What runs of one commit took, and what they were expected to cost."""

    commit: str | None
    seconds: float = 0.0
    cost: float = 0.0


def _cost(experiment: Experiment, stacked: bool) -> float:
    return experiment.stacked_cost() if stacked else experiment.cost()


def _groups(experiment: Experiment) -> list[tuple[str, ...]]:
    """Return the groups of runs by which an experiment is judged, the closest first."""
    model, data, method = (str(getattr(experiment, name, "")) for name in ("model", "data", "method"))
    network = model.rstrip("0123456789")  # resnet32 and resnet56
    return [(experiment.kind, network, data, method), (experiment.kind,)]


def _seconds(rows: Sequence[dict[str, Any]]) -> list[float]:
    """Return the seconds that each run of rows of one device would take by itself.

    Epochs count as fast as their fastest quarter: others may have used the machine. Runs that others accompanied for
    more than three quarters of their time had an equal share of the device.
    """
    spans = {_run(row): _span(row) for row in rows}
    begins, ends = np.array([*spans.values()] or [(0.0, 0.0)]).T
    found = []
    for row in rows:
        begin, end = spans[_run(row)]
        overlaps = np.minimum(ends, end) - np.maximum(begins, begin)
        found.append(_quiet(row, int(max(1, (overlaps > 0.75 * (end - begin)).sum()))))
    return found


def _run(row: dict[str, Any]) -> tuple[Any, ...]:
    """Return what the rows of one run share: those of a stack are one."""
    if "together" in row["metrics"]:
        return row["wall_s"], row["commit"], row["metrics"]["together"]
    return row["key"], row["seed"]


def _span(row: dict[str, Any]) -> tuple[float, float]:
    """Return when the last call of a run began and ended; nothing for a time that cannot be read."""
    try:
        end = datetime.fromisoformat(row["time"]).timestamp()
    except ValueError:
        return 0.0, 0.0
    return end - row["wall_s"] + (row["metrics"].get("resumed_seconds") or 0.0), end


def _quiet(row: dict[str, Any], side_by_side: int) -> float:
    """Return the seconds of a row with all epochs as fast as its fastest quarter, shared by runs side by side.

    Example:
        >>> row = {"wall_s": 60.0, "curves": {"seconds": [10.0, 12.0, 14.0, 16.0, 26.0, 36.0, 46.0, 56.0]}}
        >>> _quiet(row, 1), _quiet(row, 2)
        (28.0, 21.0)
    """
    ends = row["curves"].get("seconds", [])
    if len(ends) < 3 or not all(isinstance(end, int | float) for end in ends):
        return float(row["wall_s"])
    epochs = sorted(end - begin for begin, end in pairwise(ends))  # the first epoch compiles and warms up
    rest = max(0.0, row["wall_s"] - sum(epochs))
    return float(rest + max(0.0, epochs[len(epochs) // 4]) * len(epochs) / side_by_side)


def _known(key: str) -> Experiment | None:
    """Return the experiment of a key; None for a kind, a field or a value that this version does not have."""
    try:
        experiment = experiment_of(key)
        experiment.cost()  # reads most of the fields
    except (ValueError, TypeError):
        return None
    return experiment


class Budget:
    """The time that is left.

    Attributes:
        resumes: whether a stack that was begun is resumed even if it is not expected to end in time.
    """

    def __init__(self, seconds: float, estimates: Estimates, *, resumes: bool = False) -> None:
        self._end, self.estimates, self.resumes = monotonic() + seconds, estimates, resumes

    def fits(self, pairs: Iterable[Pair], *, stacked: bool = False) -> bool:
        """Return whether a run of pairs that starts now is expected to end in time."""
        seconds = self.estimates.seconds((pair.experiment for pair in pairs), stacked=stacked)
        return monotonic() + seconds <= self._end


def run_for(
    seconds: float,
    steps: Sequence[tuple[Sequence[Pair], int | None]],
    store: Store,
    engine: Callable[..., Any],
    *,
    perform: Perform,
    estimates: Estimates,
    display: Display | None = None,
) -> Summary:
    """Run steps in their order until the time is over, stop cleanly, and return what was done.

    What was begun in an earlier call is resumed, and what is expected to end in time is run first. Then the first pair
    that is left is begun all the same: once the time is over it keeps its checkpoint, and the next call resumes it.

    Args:
        steps: pairs of a sweep, and how many networks of the same shape may train in one stack; None trains each alone.
    """
    pairs = list(dict.fromkeys(pair for each, _ in steps for pair in each))
    before, failed = store.names(), dict[tuple[str, int], Outcome]()
    with stopped_after(seconds):
        for budget in (Budget(seconds, estimates, resumes=True), None):
            for each, together in steps:
                left = [pair for pair in each if pair.name not in failed]
                found = run(left, store, engine, perform=perform, together=together, budget=budget, display=display)
                failed |= {outcome.pair.name: outcome for outcome in found.failed}
    names = store.names()
    return Summary(
        had=sum(pair.name in before for pair in pairs),
        done=[pair for pair in pairs if pair.name in names - before],
        failed=list(failed.values()),
        postponed=[pair for pair in pairs if pair.name not in names and pair.name not in failed],
    )
