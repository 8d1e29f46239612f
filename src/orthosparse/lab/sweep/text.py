"""Rows as text: a line that says what the file is, then one row a line, as compact JSON."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from orthosparse.files import write_atomically
from orthosparse.lab.sweep.checks import problem_of

_HEADER = "orthosparse_results"
_VERSION = 1


def write_text(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Write rows to a file, whole or not at all."""
    lines = [{_HEADER: _VERSION}, *rows]
    text = "".join(json.dumps(line, sort_keys=True, separators=(",", ":"), allow_nan=False) + "\n" for line in lines)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text.encode())


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
