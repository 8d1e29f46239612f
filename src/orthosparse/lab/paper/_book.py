"""Rows by experiment: those trained as it asks, or those that differ from it in epochs or precision alone."""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any, NamedTuple

from orthosparse.lab.experiments import Experiment
from orthosparse.lab.paper._rendered import Measured

Row = dict[str, Any]


class Way(NamedTuple):
    """How a network was trained, in what rows of one experiment may differ; what is no training has one way."""

    epochs: int = 0
    precision: str = ""

    def __str__(self) -> str:
        return f"{self.epochs} epoch{'s' * (self.epochs != 1)} in {self.precision}"


def way_of(fields: Mapping[str, Any]) -> Way:
    """Return the way that an experiment, described, or the fields of a row have.

    Example:
        >>> way_of({"model": "mlp", "epochs": 20, "precision": "tf32"})
        Way(epochs=20, precision='tf32')
    """
    return Way(fields.get("epochs") or 0, fields.get("precision") or "")


def family(key: str) -> str:
    """Return a key without its way: trainings of one experiment, shorter or in another precision, share it.

    Example:
        >>> family('{"epochs":20,"kind":"training","model":"mlp","precision":"bf16"}')
        '{"kind":"training","model":"mlp"}'
    """
    fields = json.loads(key)
    if fields.get("kind") == "training":
        for name in Way._fields:
            fields.pop(name, None)
    return json.dumps(fields, sort_keys=True, separators=(",", ":"))


class Book:
    """Finds the rows of an experiment."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._rows: dict[str, dict[Way, list[Row]]] = defaultdict(lambda: defaultdict(list))
        self._level: dict[str, Way] = {}
        # Two rows of one way and one seed are one seed, even if one spells out what the recipe says: the other stays.
        for row in sorted(rows, key=lambda row: (row["seed"], len(row["key"]))):
            alike = self._rows[family(row["key"])][way_of(row["fields"])]
            if not alike or alike[-1]["seed"] != row["seed"]:
                alike.append(row)

    def level(self, experiments: Iterable[Experiment]) -> "Book":
        """Return a book for the comparison of these experiments.

        Those that were trained in the way that most of them were show it, even where they have rows of more epochs: a
        comparison of a short training with a long one says nothing, and one of two precisions says little. Of equally
        many the longer one counts, then the precision that the experiments ask for.
        """
        asked = {family(each.key()): _asked(each) for each in experiments}
        families = asked.keys() & self._rows.keys()
        counts = Counter(way for name in families for way in self._rows[name])
        wanted = Counter(asked[name].precision for name in families)
        other = Book(())
        other._rows, other._level = self._rows, {name: self._level[name] for name in self._level.keys() - families}
        if counts:
            most = max(counts, key=lambda way: (counts[way], way.epochs, wanted[way.precision], way))
            other._level |= {name: most for name in families if most in self._rows[name]}
        return other

    def rows(self, experiment: Experiment) -> tuple[list[Row], str]:
        """Return the rows of an experiment and a note that says how they differ from it, if they do.

        Where none is as asked, those of the right number of epochs come first, then those of the right precision, then
        those with the most epochs.
        """
        ways, asked = self._rows.get(family(experiment.key())), _asked(experiment)
        if not ways:
            return [], ""
        nearest = max(ways, key=lambda way: (way.epochs == asked.epochs, way.precision == asked.precision, way))
        taken = self._level.get(family(experiment.key()), nearest)
        return ways[taken], _note(taken, asked)

    def is_level(self, experiment: Experiment) -> bool:
        """Return whether the rows of an experiment were trained as most of those that it was levelled with."""
        return family(experiment.key()) in self._level

    def named(self, label: str, experiment: Experiment) -> str:
        """Return the label of a curve, which says how it was trained if most others beside it were not so."""
        rows = self.rows(experiment)[0]
        return label if not rows or self.is_level(experiment) else f"{label} ({way_of(rows[0]['fields'])})"

    def measured(self, experiment: Experiment, value: str | Callable[[Row], float | None]) -> Measured:
        """Return a metric of every seed; runs without it (diverged) are counted in the note."""
        rows, note = self.rows(experiment)
        found = [value(row) if callable(value) else row["metrics"].get(value) for row in rows]
        kept = [number for number in found if number is not None]
        lost = len(found) - len(kept)
        notes = [note] * bool(note) + [f"{lost} of {len(found)} diverged"] * bool(lost)
        return Measured(kept, "; ".join(notes), rows, note)

    def accuracy(self, experiment: Experiment) -> Measured:
        """Return the test accuracies, in percent; the note has those of the way asked for, if another one is shown.

        `level` is one reason for that.
        """
        measured, asked = self.measured(experiment, _percent), _asked(experiment)
        whole = self._rows.get(family(experiment.key()), {}).get(asked, [])
        full = [percent for percent in map(_percent, whole) if percent is not None]
        if not measured.short or not full:
            return measured
        shown = way_of(measured.rows[0]["fields"])
        apart = [f"after {asked.epochs}"] * (shown.epochs != asked.epochs)
        apart += [f"in {asked.precision}"] * (shown.precision != asked.precision)
        return replace(measured, note=f"{measured.note}; {fmean(full):.2f} {' '.join(apart)}")

    def curve(self, experiment: Experiment, name: str) -> list[float | None]:
        """Return a curve, averaged over the seeds point by point as far as all of them go."""
        curves = [row["curves"][name] for row in self.rows(experiment)[0] if row["curves"].get(name)]
        return [_mean(points) for points in zip(*curves, strict=False)]


def _asked(experiment: Experiment) -> Way:
    return way_of(experiment.described())


def _note(taken: Way, asked: Way) -> str:
    """Return in what one way differs from another.

    Example:
        >>> _note(Way(20, "tf32"), Way(200, "tf32")), _note(Way(20, "bf16"), Way(200, "tf32"))
        ('20 epochs instead of 200', '20 epochs in bf16 instead of 200 in tf32')
    """
    if taken == asked:
        return ""
    if taken.precision == asked.precision:
        return f"{taken.epochs} epochs instead of {asked.epochs}"
    length = "" if taken.epochs == asked.epochs else f"{asked.epochs} in "
    return f"{taken.epochs} epochs in {taken.precision} instead of {length}{asked.precision}"


def _percent(row: Row) -> float | None:
    accuracy = row["metrics"].get("test_accuracy")
    return None if accuracy is None else 100 * accuracy


def _mean(values: Sequence[float | None]) -> float | None:
    kept = [value for value in values if value is not None]
    return fmean(kept) if len(kept) == len(values) else None
