"""What every experiment is: plain fields, a key that outlives new fields, a price, and a way to run."""

import json
from collections.abc import Callable, Collection
from dataclasses import MISSING, Field, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, get_args


def plain_fields(described: Any) -> dict[str, Any]:
    """Return every field of a dataclass in plain values."""
    return {field.name: _plain(field, getattr(described, field.name)) for field in fields(described)}


def changed_fields(described: Any, unread: Collection[str] = ()) -> dict[str, Any]:
    """Return the fields that differ from their defaults, in plain values, without those that nobody reads."""
    plain = plain_fields(described)
    read = [field for field in fields(described) if field.name not in unread]
    return {field.name: plain[field.name] for field in read if plain[field.name] != _default(field)}


def words_of(given: dict[str, Any]) -> list[str]:
    """Return fields in words.

    Example:
        >>> words_of({"model": "mlp", "density": 0.1, "epochs": 3, "options": {"iterations": 20}})
        ['mlp', 'density=0.1', 'epochs=3', 'iterations=20']
    """
    return [_word(name, value) for name, value in given.items()]


def _default(field: Field[Any]) -> Any:
    """Return the plain default of a field; MISSING, which equals nothing, where it has none."""
    if field.default_factory is not MISSING:
        return _plain(field, field.default_factory())
    return field.default if field.default is MISSING else _plain(field, field.default)


def _plain(field: Field[Any], value: Any) -> Any:
    """Return what JSON makes of a value: tuples become lists, and a whole number in a field of floats a float."""
    if isinstance(value, int) and not isinstance(value, bool) and float in (field.type, *get_args(field.type)):
        return float(value)
    return list(value) if isinstance(value, tuple) else value


def _word(name: str, value: Any) -> str:
    """Return a value as people would say it: names alone, and numbers with what they are."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return " ".join(f"{inner}={value[inner]}" for inner in sorted(value))
    return f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}"


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
            progress: told how far it is.
        """
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Experiment) and self.key() == other.key()

    def __hash__(self) -> int:
        return hash(self.key())
