"""Chapters of the report: an item, its own rows out of all rows, what they render to, on which machines, how long."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import ModuleType

from orthosparse.lab.paper._book import Row, Way, family, way_of
from orthosparse.lab.paper._rendered import Rendered
from orthosparse.lab.paper._words import seconds_text
from orthosparse.lab.sweep.store import together_of


@dataclass(frozen=True)
class Chapter:
    """One item of the report.

    Attributes:
        done, pairs: pairs (experiment, seed) with a row, and all of them.
        others: how many rows were trained otherwise than asked for, by how they were.
        machines: where the rows come from, and the time they took together.
    """

    name: str
    title: str
    rendered: Rendered
    rows: list[Row]
    done: int
    pairs: int
    others: Mapping[str, int]
    machines: str

    @property
    def state(self) -> str:
        """How much of it is measured."""
        return ", ".join(
            [f"{self.done} of {self.pairs} pairs", *(f"{count} more {how}" for how, count in self.others.items())]
        )


def chapters_of(items: Mapping[str, ModuleType], rows: Iterable[Row], *, smoke: bool = False) -> list[Chapter]:
    """Return a chapter for every item, those without rows too."""
    kept = [(family(row["key"]), row) for row in rows]
    return [_chapter(name, item, kept, smoke) for name, item in items.items()]


def _chapter(name: str, item: ModuleType, rows: list[tuple[str, Row]], smoke: bool) -> Chapter:
    asked = {family(each.key()): way_of(each.described()) for each in item.experiments(smoke=smoke)}
    own = [row for its_family, row in rows if its_family in asked]
    differences = [
        (its_family, row["seed"], _difference(row, asked[its_family]))
        for its_family, row in rows
        if its_family in asked
    ]
    done = {(its_family, seed) for its_family, seed, how in differences if not how and seed in item.SEEDS}
    return Chapter(
        name=name,
        title=item.TITLE,
        rendered=item.render(own, smoke=smoke),
        rows=own,
        done=len(done),
        pairs=len(asked) * len(item.SEEDS),
        others=Counter(how for _, _, how in differences if how),
        machines=_machines(own),
    )


def _difference(row: Row, asked: Way) -> str:
    """Return in words how a row was trained otherwise than asked for; nothing for one that was not."""
    way = way_of(row["fields"])
    words = ["with another number of epochs"] * (way.epochs != asked.epochs)
    return " and ".join(words + ["in another precision"] * (way.precision != asked.precision))


def _machines(rows: list[Row]) -> str:
    if not rows:
        return "no rows"
    devices = Counter(str(row["device"]) for row in rows)
    counted = [f"{device} ({count})" for device, count in devices.most_common()]
    named = ", ".join(counted if len(counted) > 1 else devices)
    # Rows of networks that trained together all have the time of the whole.
    seconds = sum(row["wall_s"] / together_of(row) for row in rows)
    return f"{len(rows)} row{'s' * (len(rows) > 1)}: {named}; {seconds_text(seconds)} in all"
