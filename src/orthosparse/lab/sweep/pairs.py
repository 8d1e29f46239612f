"""Pairs of an experiment and a seed, the tasks that run them, and what came of each."""

from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from orthosparse.lab.experiments import Experiment
from orthosparse.lab.sweep.checks import SEEDS

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
