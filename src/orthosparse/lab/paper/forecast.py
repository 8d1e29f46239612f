"""What is left of the queue: the missing pairs of every entry, and the minutes that they are expected to take."""

from collections.abc import Iterable, Sequence
from typing import Any

from orthosparse.lab.experiments.training import group_of
from orthosparse.lab.paper.queue import Entry
from orthosparse.lab.rendering.contents import Table, plain_table
from orthosparse.lab.sweep.estimates import Estimates
from orthosparse.lab.sweep.pairs import Pair


def forecast_of(
    steps: Iterable[tuple[Entry, Sequence[Pair]]], known: set[tuple[str, int]], estimates: Estimates
) -> list[dict[str, Any]]:
    """Return what is missing of every entry; a pair that several entries have counts for the first of them.

    Minutes are `rough` where no run of the same network was measured.

    Args:
        steps: entries of the queue, each with all of its pairs.
        known: the names of pairs that have a row.
    """
    found = []
    for entry, pairs in steps:
        missing = [pair for pair in pairs if pair.name not in known]
        known = known | {pair.name for pair in missing}
        seconds = sum(
            estimates.seconds([each], stacked=entry.together is not None and group_of(each) is not None)
            for each in (pair.experiment for pair in missing)
        )
        rough = not all(estimates.has(pair.experiment) for pair in missing)
        about = {"missing": len(missing), "pairs": len(pairs), "minutes": round(seconds / 60, 1), "rough": rough}
        found.append({"title": entry.title, "item": entry.item, **about})
    return found


def forecast_table(found: Sequence[dict[str, Any]]) -> Table:
    """Return a row for each entry, and the sums of all of them; rough minutes have a ~."""
    rows = [
        [each["title"], each["item"], f"{each['missing']} of {each['pairs']}", _about(each["minutes"], each["rough"])]
        for each in found
    ]
    missing, minutes, rough = (sum(each[name] for each in found) for name in ("missing", "minutes", "rough"))
    rows.append(["all", "", str(missing), _about(minutes, rough)])
    return plain_table(("next", "item", "missing pairs", "minutes"), rows, text=(0, 1))


def _about(minutes: float, rough: bool) -> str:
    return f"{'~' if rough else ''}{minutes:.1f}"
