"""Chapters of the report: an item, its own rows out of all rows, what they render to, on which machines, how long."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import ModuleType

from orthosparse.lab.paper._book import Row, family
from orthosparse.lab.paper._rendered import Rendered
from orthosparse.lab.paper._words import seconds_text
from orthosparse.lab.results import together_of


@dataclass(frozen=True)
class Chapter:
    """One item of the report.

    Attributes:
        done, pairs: pairs (experiment, seed) with a row, and all of them.
        shorter: rows with another number of epochs than asked for.
        machines: where the rows come from, and the time they took together.
    """

    name: str
    title: str
    rendered: Rendered
    rows: list[Row]
    done: int
    pairs: int
    shorter: int
    machines: str

    @property
    def state(self) -> str:
        """How much of it is measured."""
        others = f", {self.shorter} more with another number of epochs" if self.shorter else ""
        return f"{self.done} of {self.pairs} pairs{others}"


def chapters_of(items: Mapping[str, ModuleType], rows: Iterable[Row], *, smoke: bool = False) -> list[Chapter]:
    """Return a chapter for every item, those without rows too."""
    kept = [(family(row["key"]), row) for row in rows]
    return [_chapter(name, item, kept, smoke) for name, item in items.items()]


def _chapter(name: str, item: ModuleType, rows: list[tuple[str, Row]], smoke: bool) -> Chapter:
    keys = {experiment.key() for experiment in item.experiments(smoke=smoke)}
    families = {family(key) for key in keys}
    own = [row for its_family, row in rows if its_family in families]
    done = sum(row["key"] in keys and row["seed"] in item.SEEDS for row in own)
    return Chapter(
        name=name,
        title=item.TITLE,
        rendered=item.render(own, smoke=smoke),
        rows=own,
        done=done,
        pairs=len(keys) * len(item.SEEDS),
        shorter=sum(row["key"] not in keys for row in own),
        machines=_machines(own),
    )


def _machines(rows: list[Row]) -> str:
    if not rows:
        return "no rows"
    devices = Counter(str(row["device"]) for row in rows)
    named = ", ".join(f"{device} ({count})" for device, count in devices.most_common())
    # Rows of networks that trained together all have the time of the whole.
    seconds = sum(row["wall_s"] / together_of(row) for row in rows)
    return f"{len(rows)} rows: {named}; {seconds_text(seconds)} in all"
