"""What every experiment is: plain fields, a key that outlives new fields, a price, and a way to run."""

import json
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from orthosparse.lab.training.run import changed_fields, plain_fields, words_of

# Told how far an experiment has come: the fraction done, and a few words.
Progress = Callable[[float, str], None]


@dataclass(frozen=True, eq=False)
class Experiment:
    """One cell of a table or one point of a figure, for any seed.

    A kind is a frozen dataclass of plain values. Two experiments are equal when their keys are. A field that is added
    later has a default that changes nothing, so that old keys live.

    Attributes:
        kind: the name of the kind, in `KINDS`.
        accelerated: whether a run takes a GPU where there is one; the other kinds compute on the processor.
    """

    kind: ClassVar[str]
    accelerated: ClassVar[bool] = False

    @classmethod
    def names(cls) -> set[str]:
        """Return the names that may stand in a key, beside the kind."""
        return {field.name for field in fields(cls)}

    def reads(self) -> str | None:
        """Return the name of the data set that a run reads, if it reads one."""
        name: str | None = getattr(self, "data", None)
        return name

    def unread(self) -> set[str]:
        """Return the fields that the others make meaningless; they are not part of the key."""
        return set()

    def given(self) -> dict[str, Any]:
        """Return the fields that differ from their defaults and are read, in plain values."""
        return changed_fields(self, self.unread())

    def key(self) -> str:
        """Return the kind and the given fields as compact JSON, names in order."""
        return self._key

    @cached_property
    def _key(self) -> str:
        return json.dumps({"kind": self.kind, **self.given()}, sort_keys=True, separators=(",", ":"), allow_nan=False)

    def described(self) -> dict[str, Any]:
        """Return every field in plain values; what stands for "the usual" is spelled out."""
        return plain_fields(self)

    def label(self) -> str:
        """Return the given fields in a few words, for people."""
        return " ".join([self.kind, *words_of(self.given())])

    def cost(self) -> float:
        """Return a rough number of seconds that a run takes; measured times correct it."""
        return 1.0

    def stacked_cost(self) -> float:
        """Return the same of a run in a stack of many: its share of the time of all."""
        return self.cost()

    def run(
        self,
        seed: int,
        *,
        root: Path | str | None = None,
        out: Path | None = None,
        device: str = "auto",
        progress: Progress | None = None,
    ) -> dict[str, Any]:
        """Run with one seed and return its metrics, flat and in plain values, and ``curves``, lists of numbers.

        Args:
            root: the folder of the data.
            out: a folder of the run's own; what an interrupted run left there is taken up. None keeps nothing.
            device: auto, cpu, cuda or cuda:INDEX.
            progress: called with how far it is.
        """
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Experiment) and self.key() == other.key()

    def __hash__(self) -> int:
        return hash(self.key())
