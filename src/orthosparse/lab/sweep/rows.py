"""Rows of results: what one must be, asked before it is kept as none can be taken back; and text files of rows."""

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from orthosparse.files import write_atomically

_HEADER, _VERSION = "orthosparse_results", 1  # the first line of a file of rows
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
        canonical = compact_json(named)
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
    """Return which of the metrics is not a number, or which of the curves is not made of numbers."""
    for name, value in row["metrics"].items():
        if not _is_number(value) and not (name in _TEXTS and isinstance(value, str)):
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


def export(rows: Sequence[dict[str, Any]], path: Path) -> dict[Path, int]:
    """Write rows to a text file (``.jsonl``), or to a folder with one for each kind; return how many are where.

    A file begins with a line that says what it is, and has one row a line, as compact JSON; it is written whole or not
    at all.

    Raises:
        ValueError: a row of a kind that names no file.
    """
    files: dict[Path, list[dict[str, Any]]] = {path: list(rows)} if path.suffix == ".jsonl" else {}
    for row in () if files else rows:
        if not is_kind(row["kind"]):  # of a store that an older version has filled
            raise ValueError(
                f"kind: expected a short name of small letters, digits and underscores; got {row['kind']!r}"
            )
        files.setdefault(path / f"{row['kind']}.jsonl", []).append(row)
    for file, own in sorted(files.items()):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, "".join(f"{compact_json(line)}\n" for line in [{_HEADER: _VERSION}, *own]).encode())
    return {file: len(own) for file, own in sorted(files.items())}


def compact_json(value: Any) -> str:
    """Return a value as JSON, names in order and without spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def read_text(path: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the rows of a file, and what is wrong with it, a line for each torn row; the others are kept.

    A file of another version, or without the line that says what it is, gives no rows. Files may be put together: the
    line may stand again between the rows.

    Raises:
        FileNotFoundError: there is no such file.
    """
    rows: list[dict[str, Any]] = []
    problems: list[str] = []
    lines = [(number, line) for number, line in enumerate(path.read_bytes().split(b"\n"), start=1) if line.strip()]
    first = (_parsed(lines[0][1]) or {}) if lines else {}
    if _HEADER not in first:
        return [], [f"{path}: expected a file of results, which begins with {_HEADER!r}; it was left out"]
    for number, line in lines:
        parsed = _parsed(line)
        if parsed is None:
            problems.append(f"{path}: line {number}: not a whole row, left out")
        elif _HEADER not in parsed:
            wrong = problem_of(parsed)
            rows += [] if wrong else [parsed]
            problems += [f"{path}: line {number}: not a row ({wrong}), left out"] if wrong else []
        elif parsed[_HEADER] != _VERSION:
            version = f"version {parsed[_HEADER]!r}; this program reads {_VERSION}"
            return rows, [*problems, f"{path}: line {number}: {version}; the file was left out from there on"]
    return rows, problems


def _parsed(line: bytes) -> dict[str, Any] | None:
    """Return the dictionary in a line, or None where there is none; NaN and Infinity are no JSON."""
    try:
        found = json.loads(line, parse_constant=_refuse)
    except (ValueError, RecursionError):  # wrong bytes, not JSON, or nested beyond reason
        return None
    return found if isinstance(found, dict) else None


def _refuse(constant: str) -> None:
    raise ValueError(f"expected a number; got {constant}")
