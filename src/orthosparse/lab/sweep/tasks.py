"""Which tasks a sweep has, and in which order."""

import json
import logging
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

from orthosparse.files import write_atomically
from orthosparse.lab.experiments import experiment_of
from orthosparse.lab.experiments.training import group_of
from orthosparse.lab.sweep.pairs import Pair, Task

_MEMBERS = "members.json"
_log = logging.getLogger(__name__)


def ordered(pairs: Sequence[Pair], names: Collection[tuple[str, int]]) -> list[Pair]:
    """Return the pairs without a row (`names` are those with one): a first seed of every experiment before any second.

    Within a round, in the order in which they were given.
    """
    rounds = Counter(key for key, _ in names)
    missing: list[tuple[int, int, Pair]] = []
    for index, pair in enumerate(pairs):
        key, _ = pair.name
        if pair.name not in names:
            missing.append((rounds[key], index, pair))
            rounds[key] += 1
    return [pair for _, _, pair in sorted(missing, key=lambda entry: entry[:2])]


def stacked(pairs: Sequence[Pair], names: Collection[tuple[str, int]], most: int, runs: Path) -> list[Task]:
    """Return tasks that train networks of the same shape in one stack: first those that an earlier sweep has begun.

    Args:
        pairs: without rows, in the order in which they are wanted.
        names: of all pairs that have a row.
        most: the most networks in one stack.
        runs: where tasks keep their checkpoints.

    Raises:
        ValueError: fewer than one network in a stack.
    """
    if most < 1:
        raise ValueError(f"together: expected at least 1; got {most}")
    left = {pair.name: pair for pair in pairs}
    tasks: list[Task] = []
    for members in _begun(runs):
        missing = tuple(pair for pair in members if pair.name not in names)
        if missing and all(pair.name in left for pair in missing):
            tasks.append(Task(members, missing, stacked=True, begun=True))
            left = {name: pair for name, pair in left.items() if pair not in missing}
    for group in _grouped(left.values(), most):
        tasks.append(Task(tuple(group), tuple(group), stacked=group_of(group[0].experiment) is not None))
    return tasks


def _grouped(pairs: Iterable[Pair], most: int) -> list[list[Pair]]:
    """Return the pairs in groups of one shape, in the order of their first pairs."""
    groups: list[list[Pair]] = []
    open_groups: dict[str, list[Pair]] = {}
    for pair in pairs:
        shape = group_of(pair.experiment)
        group = None if shape is None else open_groups.get(shape)
        if group is None or len(group) == most:
            group = []
            groups.append(group)
            if shape is not None:
                open_groups[shape] = group
        group.append(pair)
    return groups


def begin(task: Task, runs: Path) -> None:
    """Write down which pairs are in a stack, so that a later sweep can resume it."""
    folder = runs / task.folder
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / _MEMBERS, json.dumps([list(pair.name) for pair in task.pairs]).encode())


def _begun(runs: Path) -> Iterator[tuple[Pair, ...]]:
    """Yield the pairs of stacks that earlier sweeps have begun, in the order of their folders."""
    for path in sorted(runs.glob(f"together-*/{_MEMBERS}")):
        try:
            yield tuple(Pair(experiment_of(key), seed) for key, seed in json.loads(path.read_text()))
        except FileNotFoundError:  # another runner has just kept its rows
            continue
        except ValueError as error:  # of another version
            _log.warning("%s is not resumed: %s", path.parent, error)
