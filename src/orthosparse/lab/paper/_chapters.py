"""What the report is made of: items with their own rows out of all rows, and single runs."""

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from orthosparse.lab.experiments import experiment_of
from orthosparse.lab.paper._contents import Rendered
from orthosparse.lab.paper._layout import seconds_text
from orthosparse.lab.paper._rows import Row, Setting, family, setting_of
from orthosparse.lab.sweep.store import together_of

_POINTS = 240  # of an embedded curve; longer ones are thinned evenly, first and last kept
_WHOLE = ("mask", "weights", "values")  # pictures, not curves
_UNSEEN = ("values", "weights", "lr", "seconds")  # curves that the page does not draw


@dataclass(frozen=True)
class Chapter:
    """One item of the report.

    Attributes:
        done, pairs: pairs (experiment, seed) with a row, and all of them.
        machines: where the rows come from, and the time they took together.
        state: how much of it is measured, in words.
    """

    name: str
    title: str
    rendered: Rendered
    rows: list[Row]
    done: int
    pairs: int
    machines: str
    state: str


def chapters_of(items: Mapping[str, ModuleType], rows: Iterable[Row], *, smoke: bool = False) -> list[Chapter]:
    """Return a chapter for every item, those without rows too."""
    kept = [(family(row["key"]), row) for row in rows]
    return [_chapter(name, item, kept, smoke) for name, item in items.items()]


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


def _chapter(name: str, item: ModuleType, rows: list[tuple[str, Row]], smoke: bool) -> Chapter:
    asked = {family(each.key()): setting_of(each.described()) for each in item.experiments(smoke=smoke)}
    own = [row for its_family, row in rows if its_family in asked]
    differences = [
        (its_family, row["seed"], _difference(row, asked[its_family]))
        for its_family, row in rows
        if its_family in asked
    ]
    done = {(its_family, seed) for its_family, seed, how in differences if not how and seed in item.SEEDS}
    pairs, others = len(asked) * len(item.SEEDS), Counter(how for _, _, how in differences if how)
    return Chapter(
        name=name,
        title=item.TITLE,
        rendered=item.render(own, smoke=smoke),
        rows=own,
        done=len(done),
        pairs=pairs,
        machines=_machines(own),
        state=", ".join([f"{len(done)} of {pairs} pairs", *(f"{count} more {how}" for how, count in others.items())]),
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
