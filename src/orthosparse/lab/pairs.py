"""A pair, one experiment with one seed: run it, and make the row that says what came of it."""

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from hashlib import blake2b
from pathlib import Path
from time import perf_counter
from typing import Any

from orthosparse.lab.experiments import Experiment, Progress
from orthosparse.lab.warned import warned

Row = dict[str, Any]


@dataclass(frozen=True)
class Pair:
    """An experiment and a seed."""

    experiment: Experiment
    seed: int

    @property
    def name(self) -> tuple[str, int]:
        """The key and the seed, by which a store knows the pair."""
        return self.experiment.key(), self.seed

    @property
    def folder(self) -> str:
        """The name of the folder in which a run of the pair keeps its checkpoints."""
        digest = blake2b(self.experiment.key().encode(), digest_size=8).hexdigest()
        return f"{self.experiment.kind}-{digest}-seed{self.seed}"

    def __str__(self) -> str:
        return f"{self.experiment.label()} seed {self.seed}"


def perform(
    pair: Pair,
    progress: Progress | None = None,
    *,
    root: Path | str | None = None,
    runs: Path | None = None,
    device: str = "auto",
) -> Row:
    """Run a pair and return its row, in values that JSON holds exactly.

    Numbers that are not finite become null, those of curves have six digits. What the library warned of is the metric
    ``warnings``.

    Args:
        root: the folder of the data.
        runs: the folder under which the pair has its own, see `Pair.folder`; None keeps no checkpoints.
    """
    experiment = pair.experiment
    device = device if experiment.accelerated else "cpu"
    source, begin = origin(device), perf_counter()
    with warned() as messages:
        metrics = experiment.run(
            pair.seed,
            root=root,
            out=None if runs is None else runs / pair.folder,
            device=device,
            progress=progress,
        )
    wall = perf_counter() - begin + metrics.get("resumed_seconds", 0.0)
    curves = metrics.pop("curves", {})
    if messages:
        metrics["warnings"] = "; ".join(dict.fromkeys(messages))
    return {
        "key": experiment.key(),
        "seed": pair.seed,
        "kind": experiment.kind,
        "fields": experiment.described(),
        "metrics": {name: _finite(value) for name, value in metrics.items()},
        "curves": {name: [_short(value) for value in values] for name, values in curves.items()},
        **source,
        "wall_s": round(wall, 6),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }


@cache
def origin(device: str) -> Row:
    """Return commit, versions and device of this process: it goes on with the code it was started with."""
    from orthosparse.lab.experiments import resolved
    from orthosparse.lab.training.provenance import provenance

    found = provenance(resolved(device))
    return {name: found[name] for name in ("commit", "versions", "device")}


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _short(value: float | None) -> float | None:
    """Return a number of a curve, with six digits.

    Example:
        >>> _short(0.123456789), _short(1), _short(math.nan)
        (0.123457, 1, None)
    """
    value = _finite(value)
    return float(f"{value:.6g}") if isinstance(value, float) else value
