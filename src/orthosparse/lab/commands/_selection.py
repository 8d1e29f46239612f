"""Which experiments are meant: filters such as ``model=resnet32``, or a glob on an experiment's words."""

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Any

_LISTED = 12  # values of a field that a message names


def selected(experiments: Sequence[Any], filters: Sequence[str]) -> list[Any]:
    """Return the experiments that pass: one filter of each field at least, and one of the globs if there are any.

    Args:
        filters: ``FIELD=VALUE`` (VALUE may be a glob; ``options.NAME`` reaches into a field), or a glob on the label.

    Raises:
        ValueError: nothing passes; the message names the fields and values that there are.
    """
    groups: dict[str, list[str]] = {}
    for text in filters:
        field, equals, value = text.partition("=")
        groups.setdefault(field if equals else "", []).append(value if equals else text)
    passing = list(experiments)
    for field, patterns in groups.items():
        passing = [each for each in passing if _passes(each, field, patterns)]
    if not passing:
        raise ValueError(f"only: expected what some experiment has; {_remedy(experiments, groups)}")
    return passing


def fields_of(experiment: Any) -> dict[str, str]:
    """Return the fields that an experiment reads, as text; those inside a field are called ``field.name``."""
    found: dict[str, str] = {}
    for name, value in experiment.described().items():
        if name in experiment.unread():
            continue
        inside = (
            {f"{name}.{inner}": each for inner, each in value.items()} if isinstance(value, dict) else {name: value}
        )
        found |= {key: _text(each) for key, each in inside.items()}
    return found


def _passes(experiment: Any, field: str, patterns: list[str]) -> bool:
    text = fields_of(experiment).get(field) if field else experiment.label()
    matches: Callable[[str], bool] = lambda pattern: fnmatchcase(text or "", pattern)  # noqa: E731 - one line
    return text is not None and any(map(matches, patterns if field else [f"*{each}*" for each in patterns]))


def _remedy(experiments: Sequence[Any], groups: dict[str, list[str]]) -> str:
    """Say which of the filters is to blame, and what could stand there."""
    known: dict[str, set[str]] = {}
    for experiment in experiments:
        for name, text in fields_of(experiment).items():
            known.setdefault(name, set()).add(text)
    for field, patterns in groups.items():
        if not field and not any(_passes(each, field, patterns) for each in experiments):
            return f"no label holds {' or '.join(map(repr, patterns))}; one is {experiments[0].label()!r}"
        if field and field not in known:
            return f"there is no field {field!r}, but {', '.join(sorted(known))}"
        if field and not any(_passes(each, field, patterns) for each in experiments):
            return f"{field} is {_listed(sorted(known[field]))}; got {', '.join(patterns)}"
    return "each of the filters passes some experiments, all of them together none"


def _listed(values: list[str]) -> str:
    more = f" and {len(values) - _LISTED} more" if len(values) > _LISTED else ""
    return f"one of {', '.join(values[:_LISTED])}{more}" if len(values) > 1 else f"always {values[0]}"


def _text(value: Any) -> str:
    """Return a value as one types it: 0.1, relu, none, true.

    Example:
        >>> _text(0.10), _text(None), _text(True), _text(["fc", "head"])
        ('0.1', 'none', 'true', 'fc,head')
    """
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(map(_text, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
