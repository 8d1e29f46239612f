"""How long runs will take, judged by earlier ones of the same kind."""

from collections.abc import Iterable
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from orthosparse.lab.experiments import Experiment, experiment_of
from orthosparse.lab.experiments.training import COSTS_OF
from orthosparse.lab.sweep.device_time import device_seconds
from orthosparse.lab.sweep.rows import problem_of
from orthosparse.lab.sweep.store import together_of


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
        for row, seconds in zip(own, device_seconds(own), strict=True):
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

    def has(self, experiment: Experiment) -> bool:
        """Return whether runs of the same network on the same data were learned from, alone or in a stack."""
        return any((stacked, _groups(experiment)[0]) in self._newest for stacked in (True, False))

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


def _known(key: str) -> Experiment | None:
    """Return the experiment of a key; None for a kind, a field or a value that this version does not have."""
    try:
        experiment = experiment_of(key)
        experiment.cost()  # reads most of the fields
    except (ValueError, TypeError):
        return None
    return experiment
