"""The command that makes given rows again: an item, and the fewest filters that leave just their experiments."""

import shlex
from collections.abc import Sequence
from types import ModuleType

from orthosparse.lab.experiments import Experiment
from orthosparse.lab.experiments.selection import NONE, fields_of, selected
from orthosparse.lab.paper._rows import Row, Setting, family
from orthosparse.lab.sweep.store import together_of

# Fields by which people think of an experiment come first.
_ORDER = ("model", "data", "activation", "density", "distribution", "scheme", "dynamic", "dense_init", "method", "size")
_MOST = 4  # values of one field in a command


def command_of(name: str, item: ModuleType, rows: Sequence[Row]) -> str:
    """Return the line for a shell; where no filters select just the rows, it makes others of the item too."""
    wanted = {family(row["key"]) for row in rows}
    every = list(item.experiments())
    filters = _filters(every, [each for each in every if family(each.key()) in wanted])
    words = ["orthosparse", "paper", "run", name, *(word for each in filters for word in ("--only", each))]
    seeds = sorted({row["seed"] for row in rows})
    if seeds != sorted(item.SEEDS):
        words += ["--seeds", ",".join(map(str, seeds))]
    most = max(map(together_of, rows), default=1)
    return shlex.join([*words, *_changes(every, rows), *(["--together", str(most)] if most > 1 else [])])


def _filters(every: list[Experiment], wanted: list[Experiment]) -> list[str]:
    """Return filters, field after field, until nothing is left but what is wanted or nothing more helps."""
    groups: list[list[str]] = []
    left = every
    # What an option may change tells nothing apart.
    others = {name for each in every for name in fields_of(each)} - {*_ORDER, *Setting._fields}
    for field in [*_ORDER, *sorted(others)]:
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


def _changes(every: Sequence[Experiment], rows: Sequence[Row]) -> list[str]:
    """Return the options that shorten trainings or change their precision, where all rows were trained so."""
    asked = {family(each.key()): each.described() for each in every}
    trained = [row for row in rows if row["kind"] == "training"]
    words: list[str] = []
    for name in Setting._fields:
        taken = {row["fields"].get(name) for row in trained}
        if len(taken) == 1 and taken != {asked[family(row["key"])][name] for row in trained}:
            words += [f"--{name}", str(taken.pop())]
    return words
