"""Rows by experiment: those of exactly its key, or those that differ from it in the number of epochs alone."""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
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
        self._rows: dict[str, dict[int, list[Row]]] = defaultdict(lambda: defaultdict(list))
        self._level: dict[str, int] = {}
        for row in sorted(rows, key=lambda row: row["seed"]):
            self._rows[family(row["key"])][row["fields"].get("epochs") or 0].append(row)

    def level(self, experiments: Iterable[Experiment]) -> "Book":
        """Return a book for the comparison of these experiments.

        Those that were trained for as many epochs as most of them show these epochs, even where they have rows of more:
        a comparison of a short training with a long one says nothing. Of equal numbers the longer one counts.
        """
        families = {family(experiment.key()) for experiment in experiments} & self._rows.keys()
        lengths = Counter(epochs for name in families for epochs in self._rows[name])
        other = Book(())
        other._rows, other._level = self._rows, dict(self._level)
        if lengths:
            most = max(lengths, key=lambda epochs: (lengths[epochs], epochs))
            other._level |= {name: most for name in families if most in self._rows[name]}
        return other

    def rows(self, experiment: Experiment) -> tuple[list[Row], str]:
        """Return the rows of an experiment and a note: those with the most epochs where none has the right number."""
        lengths = self._rows.get(family(experiment.key()))
        if not lengths:
            return [], ""
        asked = _epochs(experiment)
        taken = self._level.get(family(experiment.key()), asked if asked in lengths else max(lengths))
        return lengths[taken], "" if taken == asked else f"{taken} epochs instead of {asked}"

    def measured(self, experiment: Experiment, value: str | Callable[[Row], float | None]) -> Measured:
        """Return a metric of every seed; runs without it (diverged) are counted in the note."""
        rows, note = self.rows(experiment)
        found = [value(row) if callable(value) else row["metrics"].get(value) for row in rows]
        kept = [number for number in found if number is not None]
        lost = len(found) - len(kept)
        notes = [note] * bool(note) + [f"{lost} of {len(found)} diverged"] * bool(lost)
        return Measured(kept, "; ".join(notes), rows, note)

    def accuracy(self, experiment: Experiment) -> Measured:
        """Return the test accuracies, in percent; the note has those of the right number of epochs, if it is another.

        `level` is one reason for that.
        """
        measured, asked = self.measured(experiment, _percent), _epochs(experiment)
        whole = self._rows.get(family(experiment.key()), {}).get(asked, [])
        full = [percent for percent in map(_percent, whole) if percent is not None]
        if not measured.short or not full:
            return measured
        return replace(measured, note=f"{measured.note}; {fmean(full):.2f} after {asked}")

    def curve(self, experiment: Experiment, name: str) -> list[float | None]:
        """Return a curve, averaged over the seeds point by point as far as all of them go."""
        curves = [row["curves"][name] for row in self.rows(experiment)[0] if row["curves"].get(name)]
        return [_mean(points) for points in zip(*curves, strict=False)]


def _epochs(experiment: Experiment) -> int:
    """Return for how many epochs an experiment trains; 0 where it does not."""
    return experiment.described().get("epochs") or 0


def _percent(row: Row) -> float | None:
    accuracy = row["metrics"].get("test_accuracy")
    return None if accuracy is None else 100 * accuracy


def _mean(values: Sequence[float | None]) -> float | None:
    kept = [value for value in values if value is not None]
    return fmean(kept) if len(kept) == len(values) else None
