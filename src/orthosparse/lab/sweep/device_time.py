"""How long runs would have taken with the device to themselves, from the times in their rows."""

from collections.abc import Collection, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any

Row = dict[str, Any]
Span = tuple[float, float]  # start and end of a run, in seconds
_MOST = 0.75  # of a run's time: others that ran for more of it shared the device with all of its epochs


def device_seconds(rows: Sequence[Row]) -> list[float]:
    """Return the seconds that the run of each row would take with the device to itself; all rows are of one device.

    Epochs count as fast as their fastest quarter, as other programs may have used the device during the others. Where
    other runs of these rows shared the device most of the time, each had an equal part of it.
    """
    spans = {_run_of(row): _span_of(row) for row in rows}
    timed = {_run_of(row) for row in rows if _epochs_of(row)}
    sharing = {run: _sharing(spans[run], spans.values()) for run in timed}
    return [_alone(row, sharing.get(_run_of(row), 1)) for row in rows]


def _run_of(row: Row) -> tuple[Any, ...]:
    """Return what tells one run from another; the rows of a stack are one run."""
    if "together" in row["metrics"]:
        return row["wall_s"], row["commit"], row["metrics"]["together"]
    return row["key"], row["seed"]


def _span_of(row: Row) -> Span:
    """Return when the last call of a run started and ended; an empty span if the time cannot be read."""
    try:
        end = datetime.fromisoformat(row["time"]).timestamp()
    except ValueError:
        return 0.0, 0.0
    return end - row["wall_s"] + (row["metrics"].get("resumed_seconds") or 0.0), end


def _sharing(span: Span, spans: Collection[Span]) -> int:
    """Return how many runs shared the device during most of a span, its own included.

    Example:
        >>> _sharing((0.0, 10.0), [(0.0, 10.0), (1.0, 20.0), (5.0, 10.0)])
        2
    """
    start, end = span
    least = _MOST * (end - start)
    return max(1, sum(min(end, other_end) - max(start, other_start) > least for other_start, other_end in spans))


def _epochs_of(row: Row) -> list[float]:
    """Return the seconds of a run's epochs without the first one, which compiles and warms up; none if unknown."""
    ends = row["curves"].get("seconds", [])
    if len(ends) < 3 or not all(isinstance(end, int | float) for end in ends):
        return []
    return [end - start for start, end in pairwise(ends)]


def _alone(row: Row, sharing: int) -> float:
    """Return the seconds of a run with every epoch as fast as its fastest quarter, divided by the runs that shared.

    Example:
        >>> row = {"wall_s": 60.0, "curves": {"seconds": [10.0, 12.0, 14.0, 16.0, 26.0, 36.0, 46.0, 56.0]}}
        >>> _alone(row, 1), _alone(row, 2)
        (28.0, 21.0)
    """
    epochs = sorted(_epochs_of(row))
    if not epochs:
        return float(row["wall_s"])
    outside = max(0.0, row["wall_s"] - sum(epochs))
    quick = max(0.0, epochs[len(epochs) // 4])
    return float(outside + quick * len(epochs) / sharing)
