"""What the report is made of: items with their own rows out of all rows, and single runs."""

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from orthosparse.lab.experiments import Experiment
from orthosparse.lab.paper._layout import seconds_text
from orthosparse.lab.paper._rows import Row, Setting, asked_of, family, setting_of
from orthosparse.lab.paper._tables import Rendered
from orthosparse.lab.sweep.store import together_of

_POINTS = 240  # of an embedded curve at most; longer ones are thinned evenly
_WHOLE = ("mask", "weights", "values")  # pictures, not curves
_UNSEEN = ("values", "weights", "lr", "seconds")  # curves that the page does not draw


@dataclass(frozen=True)
class Chapter:
    """One item of the report.

    Attributes:
        done, pairs: pairs (experiment, seed) with a row, and all of them.
        machines: where the rows come from, and the time they took together.
        state: how much of it is measured, in words.
        labels: what each of the rows is called.
    """

    name: str
    title: str
    rendered: Rendered
    rows: list[Row]
    done: int
    pairs: int
    machines: str
    state: str
    labels: Sequence[str]


def chapters_of(items: Mapping[str, ModuleType], rows: Iterable[Row], *, smoke: bool = False) -> list[Chapter]:
    """Return a chapter for every item, those without rows too.

    A training of other epochs than an item asks for stands in for its own, unless it is another item's own.
    """
    kept = [(family(row["key"]), row) for row in rows]
    asked = {name: {family(each.key()): each for each in item.experiments(smoke=smoke)} for name, item in items.items()}
    lengths = {(key, asked_of(each).epochs) for own in asked.values() for key, each in own.items()}

    def belongs(key: str, row: Row, experiments: Mapping[str, Experiment]) -> bool:
        taken = (key, setting_of(row["fields"]).epochs)
        return key in experiments and (taken not in lengths or taken[1] == asked_of(experiments[key]).epochs)

    return [
        _chapter(name, item, asked[name], [pair for pair in kept if belongs(*pair, asked[name])], smoke)
        for name, item in items.items()
    ]


def cells_of(rendered: Rendered) -> tuple[int, int]:
    """Return how many cells of the paper's tables have our number at the paper's epochs, and how many there are."""
    tables = [table for table in rendered.tables if table.compared]
    cells = [cell for table in tables for cells in table.cells for cell in cells if cell.paper is not None]
    return sum(cell.ours is not None and cell.whole for cell in cells), len(cells)


def coverage(chapters: Iterable[Chapter]) -> str:
    """Say how many cells of the paper's tables have a number of ours that trained for the paper's epochs."""
    found = [cells_of(chapter.rendered) for chapter in chapters]
    ours, cells = sum(each for each, _ in found), sum(each for _, each in found)
    return f"{ours} of {cells} cells of the paper's tables have our number at the paper's epochs."


def runs_json(chapters: Iterable[Chapter]) -> str:
    """Return the runs of all chapters that have curves, each once, as JSON."""
    named = {
        (row["key"], row["seed"]): (label, row)
        for chapter in chapters
        for label, row in zip(chapter.labels, chapter.rows, strict=True)
        if row["curves"]
    }
    runs = sorted((_run(label, row) for label, row in named.values()), key=lambda run: (run["name"], run["seed"]))
    return json.dumps(runs, separators=(",", ":"))


def thinned(values: Sequence[Any]) -> dict[str, Any]:
    """Return every k-th value, and k.

    Example:
        >>> found = thinned(range(1000))
        >>> found["step"], len(found["y"])
        (5, 200)
    """
    step = max(1, math.ceil(len(values) / _POINTS))
    return {"step": step, "y": list(values[::step])}


def _chapter(
    name: str, item: ModuleType, asked: Mapping[str, Experiment], own: list[tuple[str, Row]], smoke: bool
) -> Chapter:
    labels = {its_family: each.label() for its_family, each in asked.items()}
    differences = [_difference(row, asked_of(asked[its_family])) for its_family, row in own]
    done = {
        (its_family, row["seed"])
        for (its_family, row), how in zip(own, differences, strict=True)
        if not how and row["seed"] in item.SEEDS
    }
    pairs, others = len(asked) * len(item.SEEDS), Counter(filter(None, differences))
    kept = [row for _, row in own]
    return Chapter(
        name=name,
        title=item.TITLE,
        rendered=item.render(kept, smoke=smoke),
        rows=kept,
        done=len(done),
        pairs=pairs,
        machines=_machines(kept),
        state=", ".join([f"{len(done)} of {pairs} pairs", *(f"{count} more {how}" for how, count in others.items())]),
        labels=[
            labels[its_family] + (f" ({setting_of(row['fields'])})" if how else "")
            for (its_family, row), how in zip(own, differences, strict=True)
        ],
    )


def _difference(row: Row, asked: Setting) -> str:
    """Return in words how a row was trained otherwise than asked for; nothing for one that was not."""
    setting = setting_of(row["fields"])
    words = ["with another number of epochs"] * (setting.epochs != asked.epochs)
    return " and ".join(words + ["in another precision"] * (setting.precision != asked.precision))


def _machines(rows: list[Row]) -> str:
    if not rows:
        return "no rows"
    devices = Counter(str(row["device"]) for row in rows)
    counted = [f"{device} ({count})" for device, count in devices.most_common()]
    named = ", ".join(counted if len(counted) > 1 else devices)
    # Rows of networks that trained together all have the time of the whole.
    seconds = sum(row["wall_s"] / together_of(row) for row in rows)
    return f"{len(rows)} row{'s' * (len(rows) > 1)}: {named}; {seconds_text(seconds)} in all"


def _run(label: str, row: Row) -> dict[str, Any]:
    curves = {
        name: {"step": 1, "y": values} if name in _WHOLE else thinned(values)
        for name, values in row["curves"].items()
        if name not in _UNSEEN
    }
    return {
        "name": label,
        "seed": row["seed"],
        "about": f"{row['device']}, {row['wall_s']:.4g} s, commit {row['commit'] or 'unknown'}, {row['time']}",
        "metrics": row["metrics"],
        "curves": curves,
    }
