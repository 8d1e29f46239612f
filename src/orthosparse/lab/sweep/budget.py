"""Sweeps in a given time: how long a pair will take, judged by those before it, and what still fits."""

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from time import monotonic
from typing import Any

from orthosparse.lab.experiments import Experiment, experiment_of
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
    """Times of pairs to come: those of the same experiment, else its `cost` scaled by what others really took.

    Others are, as far as there are any, experiments of the same kind on the same model and data, on a model of another
    depth and the same data, on the same data, or of the same kind.
    Of pairs that ran as one, each has its share of the time. Shares tell of those that are to run as one, and whole
    times of those that run alone; where only the other is known, it has to do: the sum of the times that pairs take
    alone is more than they take as one.
    """

    def __init__(self) -> None:
        self._same: dict[tuple[bool, str], list[float]] = {}
        self._walls: dict[tuple[bool, tuple[str, ...]], float] = {}
        self._costs: dict[tuple[bool, tuple[str, ...]], float] = {}

    def add(self, experiment: Experiment, wall: float, together: int = 1) -> None:
        """Learn from a pair that took `wall` seconds, or from one of the `together` pairs that took them as one."""
        share, shared = wall / together, together > 1
        cost = _cost(experiment, shared)
        self._same.setdefault((shared, experiment.key()), []).append(share)
        for family in _families(experiment):
            # Sums, not a mean of ratios: what takes long counts for more.
            self._walls[shared, family] = self._walls.get((shared, family), 0.0) + share
            self._costs[shared, family] = self._costs.get((shared, family), 0.0) + cost

    def learn(self, rows: Iterable[dict[str, Any]], device: str) -> None:
        """Learn from rows that were made on the same device; what this version cannot read is passed over.

        So are trainings that diverged: they ended early.
        """
        for row in rows:
            experiment = None if row["device"] != device or problem_of(row) else _known(row["key"])
            if experiment is not None and not row["metrics"].get("diverged"):
                self.add(experiment, _quiet(row), together_of(row))

    def seconds(self, *experiments: Experiment) -> float:
        """Return the seconds that a run of an experiment is expected to take, or of several as one."""
        shared = len(experiments) > 1
        return sum(self._share(experiment, (shared, not shared)) for experiment in experiments)

    def _share(self, experiment: Experiment, ways: tuple[bool, bool]) -> float:
        """Return the seconds of one experiment, of the first way that something is known of."""
        for way in ways:
            if same := self._same.get((way, experiment.key())):
                return sum(same) / len(same)
        for place in ((way, family) for family in _families(experiment) for way in ways):
            if self._costs.get(place):
                return self._walls[place] / self._costs[place] * _cost(experiment, place[0])
        return _cost(experiment, ways[0])


def _cost(experiment: Experiment, shared: bool) -> float:
    return experiment.stacked_cost() if shared else experiment.cost()


def _quiet(row: dict[str, Any]) -> float:
    """Return the seconds of a row, with all epochs as fast as its fastest quarter: others may have used the machine.

    Example:
        >>> _quiet({"wall_s": 60.0, "curves": {"seconds": [10.0, 12.0, 14.0, 16.0, 26.0, 36.0, 46.0, 56.0]}})
        28.0
    """
    ends = row["curves"].get("seconds", [])
    if len(ends) < 3 or not all(isinstance(end, int | float) for end in ends):
        return float(row["wall_s"])
    epochs = sorted(end - begin for begin, end in pairwise(ends))  # the first epoch compiles and warms up
    rest = max(0.0, row["wall_s"] - sum(epochs))
    return float(rest + max(0.0, epochs[len(epochs) // 4]) * len(epochs))


def _known(key: str) -> Experiment | None:
    """Return the experiment of a key; None for a kind, a field or a value that this version does not have."""
    try:
        experiment = experiment_of(key)
        experiment.cost()  # reads most of the fields
    except (ValueError, TypeError):
        return None
    return experiment


def _families(experiment: Experiment) -> list[tuple[str, ...]]:
    """Return the groups whose times tell something about an experiment's, the closest first."""
    model, data, method = (str(getattr(experiment, name, "")) for name in ("model", "data", "method"))
    kin = model.rstrip("0123456789")  # resnet32 tells of resnet56
    return [
        (experiment.kind, model, data, method),
        (experiment.kind, kin, data),
        (experiment.kind, data),
        (experiment.kind,),
    ]


class Budget:
    """The time that is left.

    Attributes:
        resumes: whether a stack that was begun is resumed even if it is not expected to end in time.
    """

    def __init__(self, seconds: float, estimates: Estimates, *, resumes: bool = False) -> None:
        self._end, self.estimates, self.resumes = monotonic() + seconds, estimates, resumes

    def fits(self, *experiments: Experiment) -> bool:
        """Return whether a run that starts now is expected to end in time, of an experiment or of several as one."""
        return monotonic() + self.estimates.seconds(*experiments) <= self._end


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
