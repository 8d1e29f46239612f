"""Bundles: pairs that are run as one, and which pairs of a sweep these are."""

import json
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from orthosparse.lab.experiments import Progress, experiment_of, group_of
from orthosparse.lab.files import write_atomically
from orthosparse.lab.sweep.pairs import Pair, Row, together_folder

PerformTogether = Callable[[Sequence[Pair], Progress | None], list[Row | Exception]]
_MEMBERS = "members.json"
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Together:
    """How pairs are run as one: so many at most, by `perform`, which returns a row or an error for each."""

    most: int
    perform: PerformTogether

    def __post_init__(self) -> None:
        if self.most < 1:
            raise ValueError(f"together: expected at least 1; got {self.most}")


@dataclass(frozen=True)
class Bundle:
    """Pairs that are run as one, by `perform`.

    Attributes:
        wanted: those whose rows are missing; the others are run again only as far as the bundle's checkpoint needs it.
        begun: whether an earlier sweep has begun it, so that only the same pairs can go on from there.
    """

    pairs: tuple[Pair, ...]
    wanted: tuple[Pair, ...]
    perform: PerformTogether
    begun: bool = False

    @property
    def folder(self) -> str:
        """The name of the folder in which it keeps its checkpoints."""
        return together_folder(self.pairs)


def bundled(
    pairs: Sequence[Pair], names: Collection[tuple[str, int]], together: Together, runs: Path
) -> list[Pair | Bundle]:
    """Return pairs as they are to be run: first bundles that were begun, then new ones, and what runs by itself.

    Args:
        pairs: without rows, in the order in which they are wanted.
        names: of all pairs that have a row.
        runs: where bundles keep their checkpoints.
    """
    left = {pair.name: pair for pair in pairs}
    units: list[Pair | Bundle] = []
    for members in _begun(runs):
        wanted = tuple(pair for pair in members if pair.name not in names)
        if wanted and all(pair.name in left for pair in wanted):
            units.append(Bundle(members, wanted, together.perform, begun=True))
            left = {name: pair for name, pair in left.items() if pair not in wanted}
    for group in _grouped(left.values(), together.most):
        alone = group_of(group[0].experiment) is None
        units.append(group[0] if alone else Bundle(tuple(group), tuple(group), together.perform))
    return units


def _grouped(pairs: Iterable[Pair], most: int) -> list[list[Pair]]:
    """Return the pairs in groups of one shape, each in the place of its first pair."""
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


def begin(bundle: Bundle, runs: Path) -> None:
    """Write down which pairs a bundle has, so that a later sweep can go on with it."""
    folder = runs / bundle.folder
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / _MEMBERS, json.dumps([list(pair.name) for pair in bundle.pairs]).encode())


def _begun(runs: Path) -> Iterator[tuple[Pair, ...]]:
    """Yield the pairs of bundles that earlier sweeps have begun, in the order of their folders."""
    for path in sorted(runs.glob(f"together-*/{_MEMBERS}")):
        try:
            yield tuple(Pair(experiment_of(key), seed) for key, seed in json.loads(path.read_text()))
        except ValueError as error:  # of another version
            _log.warning("%s is not gone on with: %s", path.parent, error)
