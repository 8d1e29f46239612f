"""Rows by experiment: those trained as it asks, or those that differ from it in epochs or precision alone."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from orthosparse.lab.experiments import Experiment
from orthosparse.lab.paper._tables import Column, Measurement, Place

Row = dict[str, Any]


class Setting(NamedTuple):
    """How a network was trained, in what rows of one experiment may differ; what is no training has one setting."""

    epochs: int = 0
    precision: str = ""

    def __str__(self) -> str:
        return f"{self.epochs} epoch{'s' * (self.epochs != 1)} in {self.precision}"


def setting_of(fields: Mapping[str, Any]) -> Setting:
    """Return the setting that an experiment, described, or the fields of a row have.

    Example:
        >>> setting_of({"model": "mlp", "epochs": 20, "precision": "tf32"})
        Setting(epochs=20, precision='tf32')
    """
    return Setting(fields.get("epochs") or 0, fields.get("precision") or "")


@cache  # by the experiment's key
def asked_of(experiment: Experiment) -> Setting:
    """Return the setting that an experiment asks for."""
    return setting_of(experiment.described())


@cache
def family(key: str) -> str:
    """Return a key without its setting: trainings of one experiment, shorter or in another precision, share it.

    Example:
        >>> family('{"epochs":20,"kind":"training","model":"mlp","precision":"bf16"}')
        '{"kind":"training","model":"mlp"}'
    """
    fields = json.loads(key)
    if fields.get("kind") == "training":
        for name in Setting._fields:
            fields.pop(name, None)
    return json.dumps(fields, sort_keys=True, separators=(",", ":"))


def read_rows(files: Iterable[Path]) -> tuple[list[Row], list[str]]:
    """Return the rows of all files, the first of each experiment and seed, and what could not be read."""
    from orthosparse.lab.sweep.rows import read_text

    found: dict[tuple[str, int], Row] = {}
    problems: list[str] = []
    for file in sorted(files):
        rows, wrong = read_text(file)
        problems += wrong
        for row in rows:
            found.setdefault((row["key"], row["seed"]), row)
    return list(found.values()), problems


def early_losses(rows: Iterable[Row], epochs: int) -> dict[int, float]:
    """Return the mean training loss of the first epochs by seed, of runs that kept it and did not diverge in them.

    Of a training of fewer epochs it is the mean of all of them.

    Example:
        >>> lost = {"seed": 2, "curves": {"loss": [3.0]}, "fields": {"epochs": 3}}
        >>> early_losses([{"seed": 1, "curves": {"loss": [3.0, 2.0, 1.0]}, "fields": {"epochs": 3}}, lost], 2)
        {1: 2.5}
    """
    found = {}
    for row in rows:
        curve = row["curves"].get("loss", [])[:epochs]
        if curve and None not in curve and len(curve) == min(epochs, setting_of(row["fields"]).epochs):
            found[row["seed"]] = fmean(curve)
    return found


class RowIndex:
    """Finds the rows of an experiment."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._rows: dict[str, dict[Setting, list[Row]]] = defaultdict(lambda: defaultdict(list))
        self._common: dict[str, Setting] = {}
        # Two rows of one setting and one seed are one seed, even if one spells out the recipe's own values.
        for row in sorted(rows, key=lambda row: (row["seed"], len(row["key"]))):
            same = self._rows[family(row["key"])][setting_of(row["fields"])]
            if not same or same[-1]["seed"] != row["seed"]:
                same.append(row)

    def comparing(self, experiments: Iterable[Experiment | None]) -> "RowIndex":
        """Return an index for the comparison of these experiments.

        Those that have rows of the most common setting show these, as a comparison of two precisions says little.
        Only rows of as many epochs as were asked for count; shorter trainings stand in where there are none, and are
        compared with each other alone. Of equally common settings the longer one counts, then the precision that the
        experiments ask for.
        """
        asked = {family(each.key()): asked_of(each) for each in experiments if each is not None}
        families = asked.keys() & self._rows.keys()
        whole = {name: [each for each in self._rows[name] if each.epochs == asked[name].epochs] for name in families}
        counts = Counter(chain(*whole.values())) or Counter(chain(*(self._rows[name] for name in families)))
        wanted = Counter(asked[name].precision for name in families)
        other = RowIndex(())
        other._rows = self._rows
        other._common = {name: self._common[name] for name in self._common.keys() - families}
        if counts:
            most = max(counts, key=lambda found: (counts[found], found.epochs, wanted[found.precision], found))
            other._common |= {name: most for name in families if most in (whole[name] or self._rows[name])}
        return other

    def rows(self, experiment: Experiment) -> tuple[list[Row], str]:
        """Return the rows of an experiment and a note that says how they differ from it, if they do.

        Where none is as asked, those of the right number of epochs come first, then those of the right precision, then
        those with the most epochs.
        """
        settings, asked = self._rows.get(family(experiment.key())), asked_of(experiment)
        if not settings:
            return [], ""
        nearest = max(
            settings, key=lambda found: (found.epochs == asked.epochs, found.precision == asked.precision, found)
        )
        taken = self._common.get(family(experiment.key()), nearest)
        return settings[taken], _note(taken, asked)

    def is_comparable(self, experiment: Experiment | None) -> bool:
        """Return whether the rows of an experiment were trained as most of those that it is compared with."""
        return experiment is not None and family(experiment.key()) in self._common

    def label(self, label: str, experiment: Experiment) -> str:
        """Return the label of a curve, which says how it was trained if most others beside it were not so.

        It names what was asked for too, unless the others were not trained so either.
        """
        rows, note = self.rows(experiment)
        if not rows or self.is_comparable(experiment):
            return label
        others_as_asked = asked_of(experiment) in self._common.values()
        return f"{label} ({note if others_as_asked else setting_of(rows[0]['fields'])})"

    def measured(self, experiment: Experiment | None, metric: str, *, scale: float = 1.0) -> Measurement | None:
        """Return a metric of every seed; runs without it (diverged) are counted in the note, where others have it."""
        if experiment is None:
            return None
        rows, note = self.rows(experiment)
        found = [row["metrics"].get(metric) for row in rows]
        kept = [scale * number for number in found if number is not None]
        lost = len(found) - len(kept)
        notes = [note] * bool(note) + [f"{lost} of {len(found)} diverged"] * (0 < lost < len(found))
        whole = not rows or setting_of(rows[0]["fields"]).epochs == asked_of(experiment).epochs
        return Measurement(kept, "; ".join(notes), rows, note, whole)

    def accuracy(self, experiment: Experiment | None) -> Measurement | None:
        """Return the test accuracies, in percent; where `comparing` shows another precision, the note has both."""
        measured = self.measured(experiment, "test_accuracy", scale=100)
        if experiment is None or measured is None or not measured.setting:
            return measured
        asked = asked_of(experiment)
        exact = self._rows.get(family(experiment.key()), {}).get(asked, [])
        found = [row["metrics"].get("test_accuracy") for row in exact]
        full = [100 * accuracy for accuracy in found if accuracy is not None]
        if not full:
            return measured
        return replace(measured, note=f"{measured.note}; {fmean(full):.2f} in {asked.precision}")

    def accuracies(
        self, experiments: Mapping[Place, Experiment | None], *, across: bool = False
    ) -> dict[Place, Measurement | None]:
        """Return the test accuracies of a table: each column, or all of it, trained in one setting if possible."""
        columns: dict[str, list[Experiment | None]] = defaultdict(list)
        for (_, column), experiment in experiments.items():
            columns["" if across else column].append(experiment)
        indices = {column: self.comparing(found) for column, found in columns.items()}
        return {key: indices["" if across else key[1]].accuracy(each) for key, each in experiments.items()}

    def metrics(
        self, experiments: Mapping[str, Experiment], columns: Iterable[Column]
    ) -> dict[Place, Measurement | None]:
        """Return the cells of a table that has a line for each experiment and a column for each metric, its key."""
        return {
            (line, column.key): self.measured(experiment, column.key)
            for line, experiment in experiments.items()
            for column in columns
        }

    def curve(self, experiment: Experiment, name: str, *, scale: float = 1.0) -> list[float | None]:
        """Return a curve, averaged over the seeds point by point as far as all of them go."""
        curves = [row["curves"][name] for row in self.rows(experiment)[0] if row["curves"].get(name)]
        means = [None if None in points else fmean(points) for points in zip(*curves, strict=False)]
        return [None if mean is None else scale * mean for mean in means]


def _note(taken: Setting, asked: Setting) -> str:
    """Return in what one setting differs from another.

    Example:
        >>> _note(Setting(8, "bf16"), Setting(100, "bf16")), _note(Setting(20, "bf16"), Setting(200, "tf32"))
        ('8 of 100 epochs', '20 of 200 epochs in bf16 instead of tf32')
        >>> _note(Setting(300, "bf16"), Setting(200, "bf16")), _note(Setting(200, "bf16"), Setting(200, "tf32"))
        ('300 epochs instead of 200', '200 epochs in bf16 instead of tf32')
    """
    if taken == asked:
        return ""
    if taken.epochs > asked.epochs:
        length = f"{taken.epochs} epochs instead of {asked.epochs}"
    else:
        length = (
            f"{taken.epochs} epochs" if taken.epochs == asked.epochs else f"{taken.epochs} of {asked.epochs} epochs"
        )
    return (
        length if taken.precision == asked.precision else f"{length} in {taken.precision} instead of {asked.precision}"
    )
