"""What a row must be, so that all who read rows can read it: asked before one is kept, as none can be taken back."""

import json
import math
import re
from typing import Any

SEEDS = 2**63  # what a store holds: seeds below it

_PARTS: dict[str, type | tuple[type, ...]] = {
    "key": str,
    "seed": int,
    "kind": str,
    "fields": dict,
    "metrics": dict,
    "curves": dict,
    "commit": (str, type(None)),
    "versions": dict,
    "device": str,
    "wall_s": (int, float),
    "time": str,
}
_TEXTS = ("warnings",)  # metrics that are words
# A kind names a file of rows: no path, nothing that differs by case alone, none of the devices of Windows.
_KIND = re.compile(r"(?!(?:con|prn|aux|nul|com\d|lpt\d)$)[a-z][a-z0-9_]{0,63}")


def problem_of(row: dict[str, Any]) -> str:
    """Return what is wrong with a row, or nothing.

    Kinds and fields that this version does not know are no fault: a newer one may share the store.

    Example:
        >>> problem_of({"key": "k"})
        'seed is missing'
    """
    for name, kind in _PARTS.items():
        if name not in row:
            return f"{name} is missing"
        if not isinstance(row[name], kind) or isinstance(row[name], bool):
            return f"{name} is {_short(row[name])}"
        if not _is_text(row[name]):
            return f"{name} has text or numbers that cannot be kept"
    if abs(row["seed"]) >= SEEDS:
        return f"seed is {_short(row['seed'])}"
    if row["wall_s"] < 0:
        return f"wall_s is {row['wall_s']}"
    if not is_kind(row["kind"]):
        return f"kind is {_short(row['kind'])}, not a short name of small letters, digits and underscores"
    return _key_problem(row) or _number_problem(row)


def is_kind(name: str) -> bool:
    """Return whether a kind can have this name.

    Example:
        >>> is_kind("training"), is_kind("../training"), is_kind("con")
        (True, False, False)
    """
    return _KIND.fullmatch(name) is not None


def differences(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Return the parts in which two rows differ, with both values; those of dictionaries by their names.

    Example:
        >>> differences({"seed": 1, "metrics": {"loss": 0.5}}, {"seed": 1, "metrics": {"loss": 0.25}})
        ['metrics.loss (0.5, 0.25)']
    """
    found = []
    for name in sorted({**one, **other}):
        mine, theirs = one.get(name), other.get(name)
        if isinstance(mine, dict) and isinstance(theirs, dict):
            found += [f"{name}.{part}" for part in differences(mine, theirs)]
        elif mine != theirs:
            found.append(f"{name} ({_short(mine)}, {_short(theirs)})")
    return found


def _key_problem(row: dict[str, Any]) -> str:
    """Return what is wrong with the key: compact JSON of kind and fields, names in order, as `Experiment.key` gives."""
    try:
        named = json.loads(row["key"])
        canonical = json.dumps(named, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (ValueError, RecursionError):
        named, canonical = None, ""
    if not isinstance(named, dict) or canonical != row["key"] or not _is_text(named):
        return f"key is {_short(row['key'])}, not the compact JSON of an experiment"
    if named.pop("kind", None) != row["kind"]:
        return f"kind is {_short(row['kind'])}, and another in key"
    fields = json.loads(json.dumps(row["fields"]))  # lists for the tuples of rows that were made here
    for name, value in named.items():
        if name not in fields or fields[name] != value:
            return f"fields has another {name} than key"
    epochs = fields.get("epochs")
    return "" if epochs is None or _is_whole(epochs) else f"epochs in fields is {_short(epochs)}"


def _number_problem(row: dict[str, Any]) -> str:
    """Return which of the metrics and curves is not made of numbers."""
    for name, value in row["metrics"].items():
        several = value if isinstance(value, list) else [value]
        if not all(map(_is_number, several)) and not (name in _TEXTS and isinstance(value, str)):
            return f"metric {name} is {_short(value)}"
    for name, values in row["curves"].items():
        if not isinstance(values, list) or not all(map(_is_number, values)):
            return f"curve {name} is not a list of numbers"
    together = row["metrics"].get("together", 1)
    return "" if _is_whole(together) and together > 0 else f"metric together is {_short(together)}"


def _is_number(value: Any) -> bool:
    """Whether a value is one of those that metrics and curves have; None stands for what is not finite."""
    if value is None or isinstance(value, bool):
        return True
    try:
        return isinstance(value, int | float) and math.isfinite(value)
    except OverflowError:  # a whole number beyond all floats
        return False


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_text(value: Any) -> bool:
    """Whether JSON can hold a value and a file its characters: no NaN, no half of a surrogate pair."""
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, TypeError, RecursionError):
        return False
    return True


def _short(value: Any) -> str:
    """Return a value as a message shows it."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
