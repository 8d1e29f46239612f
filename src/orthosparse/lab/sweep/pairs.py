"""Pairs of an experiment and a seed, the tasks that run them, and what came of each."""

import math
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from hashlib import blake2b
from pathlib import Path
from time import perf_counter
from typing import Any

from orthosparse.lab.experiments import Experiment, Progress
from orthosparse.lab.experiments.training import Training, run_together
from orthosparse.lab.sweep.rows import SEEDS

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
        return f"{self.experiment.kind}-{_digest(self.experiment.key())}-seed{self.seed}"

    def __str__(self) -> str:
        return f"{self.experiment.label()} seed {self.seed}"


@dataclass(frozen=True)
class Task:
    """What one process runs: a pair, or trainings of the same shape in one stack.

    Attributes:
        missing: the pairs whose rows are missing; the others run again only because the checkpoint holds them too.
        stacked: whether they train in one stack; a task that does not has one pair.
        begun: whether an earlier sweep has begun it, so that only the same pairs can be resumed.
    """

    pairs: tuple[Pair, ...]
    missing: tuple[Pair, ...]
    stacked: bool = False
    begun: bool = False

    @property
    def folder(self) -> str:
        """The name of the folder in which it keeps its checkpoints."""
        if not self.stacked:
            return self.pairs[0].folder
        return f"together-{_digest(' '.join(sorted(pair.folder for pair in self.pairs)))}"

    def __str__(self) -> str:
        more = len(self.pairs) - 1
        return f"{self.pairs[0]}{f' and {more} more' if more else ''}"


@dataclass(frozen=True)
class Outcome:
    """The row of a pair, or why there is none.

    Attributes:
        error: one line; None where there is a row.
        trace: where the error came from.
    """

    pair: Pair
    row: Row | None = None
    error: str | None = None
    trace: str = ""


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=8).hexdigest()


Perform = Callable[[Task, Progress | None], list[Row | Exception]]


def attempt(perform: Perform, task: Task, progress: Progress | None) -> list[Outcome]:
    """Perform a task, and return what came of its missing pairs; an error ends the task and not the sweep."""
    try:
        found = perform(task, progress)
    except Exception as error:  # noqa: BLE001 - whatever it is, the other tasks go on and the user sees it
        found = [error] * len(task.pairs)
    rows = dict(zip(task.pairs, found, strict=True))
    return [_outcome(pair, rows[pair]) for pair in task.missing]


def perform(
    task: Task,
    progress: Progress | None = None,
    *,
    root: Path | str | None = None,
    runs: Path | None = None,
    device: str = "auto",
    compiled: bool = False,
) -> list[Row | Exception]:
    """Run a task and return the rows of its pairs, in values that JSON holds exactly; or an error instead of a row.

    Numbers that are not finite become null, those of curves have six digits. What the library warned of is the metric
    ``warnings``. Of pairs in one stack each row has the time of all; its metric ``together`` says how many they were.

    Args:
        root: the folder of the data.
        runs: the folder under which the task has its own, see `Task.folder`; None keeps no checkpoints.
        compiled: let torch compile networks that are trained; their rows say so.
    """
    where: dict[str, Any] = {"root": root, "out": None if runs is None else runs / task.folder, "device": device}
    if task.stacked:
        return perform_stack(task.pairs, progress, **where)
    (pair,) = task.pairs
    return [perform_pair(pair, progress, compiled=compiled, **where)]


def perform_pair(
    pair: Pair,
    progress: Progress | None = None,
    *,
    root: Path | str | None = None,
    out: Path | None = None,
    device: str = "auto",
    compiled: bool = False,
    **options: Any,
) -> Row:
    """Run a pair, its checkpoints in the folder `out`, and return its row; `options` are those of a training."""
    from orthosparse.lab.provenance import captured_warnings

    experiment = pair.experiment
    own: dict[str, Any] = {"compiled": True} if compiled and isinstance(experiment, Training) else {}
    device = device if experiment.accelerated else "cpu"
    source, begin = origin(device), perf_counter()
    with captured_warnings() as messages:
        metrics = experiment.run(pair.seed, root=root, out=out, device=device, progress=progress, **own, **options)
    return _row(pair, {**metrics, **own}, messages, source, perf_counter() - begin)


def perform_stack(
    pairs: Sequence[Pair], progress: Progress | None = None, *, device: str = "auto", **options: Any
) -> list[Row | Exception]:
    """Train networks of the same shape in one stack, and return their rows; `options` are those of `run_together`."""
    source, begin = origin(device), perf_counter()
    trainings = [(pair.experiment, pair.seed) for pair in pairs if isinstance(pair.experiment, Training)]
    if len(trainings) < len(pairs):
        raise TypeError("pairs: expected trainings alone in one stack")
    found = run_together(trainings, device=device, progress=progress, **options)
    wall = perf_counter() - begin
    return [
        metrics if isinstance(metrics, Exception) else _row(pair, metrics, [], source, wall)
        for pair, metrics in zip(pairs, found, strict=True)
    ]


@cache
def origin(device: str) -> Row:
    """Return commit, versions and device of this process, which goes on with the code it was started with."""
    from orthosparse.lab.provenance import provenance
    from orthosparse.lab.training.devices import device_of

    found = provenance(device_of(device))
    return {name: found[name] for name in ("commit", "versions", "device")}


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


def _outcome(pair: Pair, found: Row | Exception) -> Outcome:
    if not isinstance(found, Exception):
        return Outcome(pair, found)
    message = " ".join(str(found).split())
    trace = "".join(traceback.format_exception(found))
    return Outcome(pair, error=f"{type(found).__name__}: {message}", trace=trace)


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
