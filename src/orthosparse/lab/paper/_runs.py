"""Runs for the page: what each row says, with curves short enough to be embedded."""

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

from orthosparse.lab.experiments import experiment_of
from orthosparse.lab.paper._rows import Row

_POINTS = 240  # of an embedded curve; longer ones are thinned evenly, first and last kept
_WHOLE = ("mask", "weights", "values")  # pictures, not curves
_UNSEEN = ("values", "weights", "lr", "seconds")  # curves that the page does not draw


def runs_json(rows: Iterable[Row]) -> str:
    """Return the runs as JSON that may stand inside a script element."""
    runs = [_run(row) for row in rows if row["curves"]]
    runs.sort(key=lambda run: (run["name"], run["seed"]))
    return json.dumps(runs, separators=(",", ":")).replace("<", "\\u003c")


def thinned(values: Sequence[Any]) -> dict[str, Any]:
    """Return every k-th value, and k.

    Example:
        >>> found = thinned(range(1000))
        >>> found["step"], len(found["y"])
        (5, 200)
    """
    step = max(1, math.ceil(len(values) / _POINTS))
    return {"step": step, "y": list(values[::step])}


def _run(row: Row) -> dict[str, Any]:
    metrics = {name: value for name, value in row["metrics"].items() if not isinstance(value, list | dict)}
    curves = {
        name: {"step": 1, "y": values} if name in _WHOLE else thinned(values)
        for name, values in row["curves"].items()
        if name not in _UNSEEN
    }
    return {
        "name": experiment_of(row["key"]).label(),
        "seed": row["seed"],
        "about": f"{row['device']}, {row['wall_s']:.4g} s, commit {row['commit'] or 'unknown'}, {row['time']}",
        "metrics": metrics,
        "curves": curves,
    }
