"""How long a pair will take, judged by those before it, and whether it still fits into the time that is left."""

import re
from collections.abc import Iterable
from time import monotonic
from typing import Any

from orthosparse.lab.experiments import KINDS, Experiment, experiment_of

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

    Others are, as far as there are any, experiments of the same kind on the same model and data, or of the same kind.
    """

    def __init__(self) -> None:
        self._same: dict[str, list[float]] = {}
        self._walls: dict[tuple[str, ...], float] = {}
        self._costs: dict[tuple[str, ...], float] = {}

    def add(self, experiment: Experiment, wall: float) -> None:
        """Learn from a pair that took `wall` seconds."""
        self._same.setdefault(experiment.key(), []).append(wall)
        cost = experiment.cost()
        for family in _families(experiment):
            # Sums, not a mean of ratios: what takes long counts for more.
            self._walls[family] = self._walls.get(family, 0.0) + wall
            self._costs[family] = self._costs.get(family, 0.0) + cost

    def learn(self, rows: Iterable[dict[str, Any]], device: str) -> None:
        """Learn from rows that were made on the same device; those of unknown kinds are passed over."""
        for row in rows:
            if row["device"] == device and row["kind"] in KINDS:
                self.add(experiment_of(row["key"]), row["wall_s"])

    def seconds(self, experiment: Experiment) -> float:
        """Return the seconds that a run is expected to take."""
        if same := self._same.get(experiment.key()):
            return sum(same) / len(same)
        known = (family for family in _families(experiment) if self._costs.get(family))
        scale = next((self._walls[family] / self._costs[family] for family in known), 1.0)
        return scale * experiment.cost()


def _families(experiment: Experiment) -> list[tuple[str, ...]]:
    """Return the groups whose times tell something about an experiment's, the closest first."""
    near = tuple(str(getattr(experiment, name, "")) for name in ("model", "data", "method"))
    return [(experiment.kind, *near), (experiment.kind,)]


class Budget:
    """The time that is left."""

    def __init__(self, seconds: float, estimates: Estimates) -> None:
        self._end, self.estimates = monotonic() + seconds, estimates

    def fits(self, experiment: Experiment) -> bool:
        """Return whether a run that starts now is expected to end in time."""
        return monotonic() + self.estimates.seconds(experiment) <= self._end
