"""Chapters of the report: an item, its own rows out of all rows, what they render to, on which machines, how long."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import ModuleType

from orthosparse.lab.paper._contents import Rendered
from orthosparse.lab.paper._layout import seconds_text
from orthosparse.lab.paper._rows import Row, Setting, family, setting_of
from orthosparse.lab.sweep.store import together_of


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


def coverage(chapters: Iterable[Chapter]) -> str:
    """Say how many cells of the paper's tables have a number of ours that trained for the paper's epochs."""
    tables = [table for chapter in chapters for table in chapter.rendered.tables if table.compared]
    cells = [cell for table in tables for cells in table.cells for cell in cells if cell.paper is not None]
    ours = sum(cell.ours is not None and cell.whole for cell in cells)
    return f"{ours} of {len(cells)} cells of the paper's tables have our number at the paper's epochs."


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
