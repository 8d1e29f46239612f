"""Rows by experiment: those of exactly its key, or else those that differ from it in the number of epochs alone."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean
from typing import Any

from orthosparse.lab.experiments import Experiment
from orthosparse.lab.paper._rendered import Measured

Row = dict[str, Any]


def family(key: str) -> str:
    """Return a key without its number of epochs: shorter trainings of one experiment share it.

    Example:
        >>> family('{"epochs":20,"kind":"training","model":"mlp"}')
        '{"kind":"training","model":"mlp"}'
    """
    fields = json.loads(key)
    if fields.get("kind") == "training":
        fields.pop("epochs", None)
    return json.dumps(fields, sort_keys=True, separators=(",", ":"))


class Book:
    """Finds the rows of an experiment."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._exact: dict[str, list[Row]] = defaultdict(list)
        self._near: dict[str, dict[int, list[Row]]] = defaultdict(lambda: defaultdict(list))
        for row in sorted(rows, key=lambda row: row["seed"]):
            self._exact[row["key"]].append(row)
            self._near[family(row["key"])][row["fields"].get("epochs") or 0].append(row)

    def rows(self, experiment: Experiment) -> tuple[list[Row], str]:
        """Return the rows of an experiment and a note: those with the most epochs where none has the right number."""
        if exact := self._exact.get(experiment.key()):
            return exact, ""
        near = self._near.get(family(experiment.key()))
        if not near:
            return [], ""
        epochs, asked = max(near), experiment.described()["epochs"]
        return near[epochs], "" if epochs == asked else f"{epochs} epochs instead of {asked}"

    def measured(self, experiment: Experiment, value: str | Callable[[Row], float | None]) -> Measured:
        """Return a metric of every seed; runs without it (diverged) are counted in the note."""
        rows, note = self.rows(experiment)
        found = [value(row) if callable(value) else row["metrics"].get(value) for row in rows]
        kept = [number for number in found if number is not None]
        lost = len(found) - len(kept)
        notes = [note] * bool(note) + [f"{lost} of {len(found)} diverged"] * bool(lost)
        return Measured(kept, "; ".join(notes), rows)

    def accuracy(self, experiment: Experiment) -> Measured:
        """Return the test accuracies, in percent."""
        return self.measured(experiment, _percent)

    def curve(self, experiment: Experiment, name: str) -> list[float | None]:
        """Return a curve, averaged over the seeds point by point as far as all of them go."""
        curves = [row["curves"][name] for row in self.rows(experiment)[0] if row["curves"].get(name)]
        return [_mean(points) for points in zip(*curves, strict=False)]


def _percent(row: Row) -> float | None:
    accuracy = row["metrics"].get("test_accuracy")
    return None if accuracy is None else 100 * accuracy


def _mean(values: Sequence[float | None]) -> float | None:
    kept = [value for value in values if value is not None]
    return fmean(kept) if len(kept) == len(values) else None
