"""Rows of results as lines of JSON: appended one by one, read back, never written over."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from orthosparse.lab.training.provenance import provenance

_DIGITS = 6  # significant ones of a measured number


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file, without the lines that say where they come from.

    A last line that was cut off while it was written is left out.

    Raises:
        ValueError: another line is not a row.
    """
    text = path.read_text(encoding="utf-8")
    lines = text[: text.rfind("\n") + 1].splitlines()
    return [row for number, line in enumerate(lines, 1) if "run" not in (row := _parsed(path, number, line))]


class Rows:
    """The rows of one file, known by key and seed.

    Before the first row that it appends stands a line ``{"run": ...}``: commit, versions, machine and date.
    """

    def __init__(self, path: Path) -> None:
        self.path, self._run_is_told = path, False
        rows = read_rows(path) if path.exists() else []
        self._rows = {(row["key"], row["seed"]): row for row in rows}

    def has(self, key: str, seed: int) -> bool:
        """Return whether there is a row for it."""
        return (key, seed) in self._rows

    def get(self, key: str, seed: int) -> dict[str, Any]:
        """Return its row."""
        return self._rows[key, seed]

    def append(self, key: str, seed: int, fields: Mapping[str, Any]) -> None:
        """Write one row to the end of the file, and have it on the disk before returning."""
        row = {"key": key, "seed": seed, **{name: _rounded(value) for name, value in fields.items()}}
        lines = [row] if self._run_is_told else [{"run": provenance(torch.device("cpu"))}, row]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a+b") as file:
            file.truncate(_end_of_whole_lines(file))
            file.write("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines).encode())
            file.flush()
            os.fsync(file.fileno())
        self._rows[key, seed], self._run_is_told = row, True


def _parsed(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}: line {number}: expected JSON; got {line[:60]!r}") from error
    if not isinstance(row, dict) or ("run" not in row and not {"key", "seed"} <= set(row)):
        raise ValueError(f"{path}: line {number}: expected a row with a key and a seed; got {line[:60]!r}")
    return row


def _end_of_whole_lines(file: Any) -> int:
    """The byte after the last line break: what follows is a line that was cut off."""
    file.seek(0)
    end: int = file.read().rfind(b"\n") + 1
    return end


def _rounded(value: Any) -> Any:
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value
