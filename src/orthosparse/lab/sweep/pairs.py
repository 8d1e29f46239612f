"""A pair, one experiment with one seed: run it, and make the row that says what came of it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from hashlib import blake2b
from pathlib import Path
from time import perf_counter
from typing import Any

from orthosparse.lab.experiments import Experiment, Progress, Training, run_together
from orthosparse.lab.sweep.checks import SEEDS
from orthosparse.lab.warned import warned

Row = dict[str, Any]


@dataclass(frozen=True)
class Pair:
    """An experiment and a seed.

    Raises:
        ValueError: a seed that no store can hold.
    """

    experiment: Experiment
    seed: int

    def __post_init__(self) -> None:
        if abs(self.seed) >= SEEDS:
            raise ValueError(f"seed: expected a whole number below 2**63; got {self.seed}")

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
    out: Path | None = None,
    device: str = "auto",
    compiled: bool = False,
    **options: Any,
) -> Row:
    """Run a pair and return its row, in values that JSON holds exactly.

    Numbers that are not finite become null, those of curves have six digits. What the library warned of is the metric
    ``warnings``.

    Args:
        root: the folder of the data.
        runs: the folder under which the pair has its own, see `Pair.folder`; None keeps no checkpoints.
        out: the pair's own folder itself, instead of one under `runs`.
        compiled: let torch compile networks that are trained; their rows say so.
        options: further arguments of a training, see `train`.
    """
    experiment = pair.experiment
    own: dict[str, Any] = {"compiled": True} if compiled and isinstance(experiment, Training) else {}
    folder = runs / pair.folder if out is None and runs is not None else out
    device = device if experiment.accelerated else "cpu"
    source, begin = origin(device), perf_counter()
    with warned() as messages:
        metrics = experiment.run(
            pair.seed,
            root=root,
            out=folder,
            device=device,
            progress=progress,
            **own,
            **options,
        )
    return _row(pair, {**metrics, **own}, messages, source, perf_counter() - begin)


def perform_together(
    pairs: Sequence[Pair],
    progress: Progress | None = None,
    *,
    root: Path | str | None = None,
    runs: Path | None = None,
    out: Path | None = None,
    device: str = "auto",
    **options: Any,
) -> list[Row | Exception]:
    """Run trainings of one shape as one, and return their rows; an error takes the place of a row.

    The time of a row is that of all of them: its metric ``together`` says how many they were.

    Args:
        runs: the folder under which they have one together, see `together_folder`.
        out: their folder itself, instead of one under `runs`.
        options: further arguments of `train_many`.
    """
    source, begin = origin(device), perf_counter()
    trainings = [(pair.experiment, pair.seed) for pair in pairs if isinstance(pair.experiment, Training)]
    if len(trainings) < len(pairs):
        raise TypeError("pairs: expected trainings alone")
    folder = runs / together_folder(pairs) if out is None and runs is not None else out
    found = run_together(trainings, root=root, out=folder, device=device, progress=progress, **options)
    wall = perf_counter() - begin
    return [
        metrics if isinstance(metrics, Exception) else _row(pair, metrics, [], source, wall)
        for pair, metrics in zip(pairs, found, strict=True)
    ]


def together_folder(pairs: Sequence[Pair]) -> str:
    """Return the name of the folder in which a run of all these pairs keeps its checkpoints."""
    names = sorted(pair.folder for pair in pairs)
    return f"together-{blake2b(' '.join(names).encode(), digest_size=8).hexdigest()}"


def _row(pair: Pair, metrics: Row, messages: list[str], source: Row, seconds: float) -> Row:
    experiment = pair.experiment
    wall = seconds + metrics.get("resumed_seconds", 0.0)
    curves = metrics.pop("curves", {})
    if said := [*messages, *filter(None, [metrics.get("warnings")])]:
        metrics["warnings"] = "; ".join(dict.fromkeys(said))
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
    from orthosparse.lab.provenance import provenance

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
