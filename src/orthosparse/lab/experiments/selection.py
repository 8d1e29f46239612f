"""Which experiments are meant: filters such as ``model=resnet32``, or a glob on an experiment's words."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import cache
from typing import Any, TypeVar

from orthosparse.lab.experiments import Experiment
from orthosparse.registry import listed

Chosen = TypeVar("Chosen", bound=Experiment)
NONE = "none"  # what a field that an experiment does not have, or not read, is


def selected(experiments: Sequence[Chosen], filters: Sequence[str]) -> list[Chosen]:
    """Return the experiments that pass: one filter of each field at least, and one of the globs if there are any.

    Args:
        filters: ``FIELD=VALUE`` (VALUE may be a glob, and a number in any notation; ``options.NAME`` reaches into a
            field), or a glob on the label.

    Raises:
        ValueError: nothing passes; the message names the fields and values that there are.
    """
    groups: dict[str, list[str]] = {}
    for text in filters:
        field, equals, value = text.partition("=")
        is_field = equals and not set("*? ") & set(field)  # labels have spaces, and options as name=value
        groups.setdefault(field if is_field else "", []).append(value if is_field else f"*{text}*")
    known = {name for each in experiments for name in fields_of(each)}
    if unknown := [field for field in groups if field and field not in known]:
        raise ValueError(
            f"only: expected a field of these experiments ({', '.join(sorted(known))}); got {unknown[0]!r}"
        )
    passing = list(experiments)
    for field, patterns in groups.items():
        passing = [each for each in passing if _passes(each, field, patterns)]
    if not passing:
        raise ValueError(f"only: expected what some experiment has; {_remedy(experiments, groups)}")
    return passing


@cache
def fields_of(experiment: Experiment) -> dict[str, str]:
    """Return the fields that an experiment reads, as text; those inside a field are called ``field.name``."""
    found: dict[str, str] = {}
    for name, value in experiment.described().items():
        if name not in experiment.unread():
            inside = value.items() if isinstance(value, dict) else ()
            found |= {f"{name}.{inner}": _text(each) for inner, each in inside}
            found |= {} if isinstance(value, dict) else {name: _text(value)}
    return found


def _passes(experiment: Experiment, field: str, patterns: Sequence[str]) -> bool:
    text = fields_of(experiment).get(field, NONE) if field else experiment.label()
    return any(fnmatchcase(text, pattern) or _same_number(text, pattern) for pattern in patterns)


def _same_number(text: str, other: str) -> bool:
    """Return whether both are the same number.

    Example:
        >>> _same_number("1", "1.0"), _same_number("0.0001", "1e-4"), _same_number("1", "one")
        (True, True, False)
    """
    try:
        return float(text) == float(other)
    except ValueError:
        return False


def _remedy(experiments: Sequence[Experiment], groups: dict[str, list[str]]) -> str:
    """Say which of the filters is to blame, and what could stand there."""
    for field, patterns in groups.items():
        if any(_passes(each, field, patterns) for each in experiments):
            continue
        if not field:
            return f"no label fits {' or '.join(patterns)}; one is {experiments[0].label()!r}"
        there = sorted({fields_of(each).get(field, NONE) for each in experiments})
        values = f"one of {listed(there)}" if len(there) > 1 else f"always {there[0]}"
        return f"{field} is {values}; got {', '.join(patterns)}"
    return "each of the filters passes some experiments, all of them together none"


def _text(value: Any) -> str:
    """Return a value as one types it: 0.1, relu, none, true.

    Example:
        >>> _text(0.10), _text(None), _text(True), _text(["fc", "head"])
        ('0.1', 'none', 'true', 'fc,head')
    """
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(map(_text, value)) or NONE
    return f"{value:g}" if isinstance(value, float) else str(value)
