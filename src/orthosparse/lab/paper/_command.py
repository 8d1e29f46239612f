"""The command that makes given rows again: an item, and the fewest filters that leave just their experiments."""

import shlex
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from orthosparse.lab.experiments import Experiment
from orthosparse.lab.paper._book import Row, family
from orthosparse.lab.results import together_of
from orthosparse.lab.selection import NONE, fields_of, selected

# Fields by which people think of an experiment come first.
_ORDER = ("model", "data", "activation", "density", "distribution", "scheme", "dynamic", "dense_init", "method", "size")
_MOST = 4  # values of one field in a command


def command_of(name: str, item: ModuleType, rows: Sequence[Row]) -> str:
    """Return the line for a shell; where no filters tell the rows apart, it makes others of the item too."""
    wanted = {family(row["key"]) for row in rows}
    every = list(item.experiments())
    filters = _filters(every, [each for each in every if family(each.key()) in wanted])
    words = ["orthosparse", "paper", "run", name, *(word for each in filters for word in ("--only", each))]
    seeds = sorted({row["seed"] for row in rows})
    if seeds != sorted(item.SEEDS):
        words += ["--seeds", ",".join(map(str, seeds))]
    most = max(map(together_of, rows), default=1)
    return shlex.join([*words, *_epochs(every, rows), *(["--together", str(most)] if most > 1 else [])])


def _filters(every: list[Experiment], wanted: list[Experiment]) -> list[str]:
    """Return filters, field after field, until nothing is left but what is wanted or nothing more helps."""
    groups: list[list[str]] = []
    left = every
    for field in [*_ORDER, *sorted({name for each in every for name in fields_of(each)} - set(_ORDER))]:
        values = list(dict.fromkeys(fields_of(each).get(field, NONE) for each in wanted))
        if len(left) == len(wanted) or len(values) > _MOST or not any(field in fields_of(each) for each in left):
            continue
        more = [f"{field}={value}" for value in values]
        passing = selected(left, more)
        if len(passing) < len(left):
            groups, left = [*groups, more], passing
    return _needed(every, groups, len(left))


def _needed(every: list[Experiment], groups: list[list[str]], count: int) -> list[str]:
    """Return the filters without those that others made superfluous: as many experiments pass."""
    for group in list(groups):
        others = [each for other in groups if other is not group for each in other]
        if len(selected(every, others)) == count:
            groups = [other for other in groups if other is not group]
    return [each for group in groups for each in group]


def _epochs(every: Sequence[Experiment], rows: Sequence[Row]) -> list[str]:
    """Return the option that shortens trainings, where all rows are equally short."""
    asked: dict[str, Any] = {family(each.key()): each.described().get("epochs") for each in every}
    taken = {row["fields"].get("epochs") for row in rows if row["fields"].get("epochs") != asked[family(row["key"])]}
    return ["--epochs", str(taken.pop())] if len(taken) == 1 else []
