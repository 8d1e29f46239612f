"""Runs the pairs that have no row yet, the most telling first, and keeps out of the way of other runners."""

import logging
import shutil
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace

from orthosparse.lab.experiments import Experiment
from orthosparse.lab.sweep.budget import Budget, Estimates, seconds_of
from orthosparse.lab.sweep.bundles import Bundle, Together, begin, bundled
from orthosparse.lab.sweep.display import Display, Silent
from orthosparse.lab.sweep.engines import Outcome, Perform
from orthosparse.lab.sweep.pairs import Pair
from orthosparse.lab.sweep.store import EXPIRY, Owner, Store, together_of

__all__ = ["Budget", "Display", "Estimates", "Silent", "Summary", "Together", "ordered", "run", "seconds_of"]

Engine = Callable[..., Generator[Outcome, None, None]]
_POLL = 1.0  # seconds between two looks at what other runners have done
_log = logging.getLogger(__name__)


@dataclass
class Summary:
    """What a sweep did.

    Attributes:
        had: pairs that had a row when it began.
        done: pairs that it ran.
        failed: outcomes without a row.
        postponed: pairs that the budget left no time for.
        elsewhere: pairs that another runner did meanwhile.
    """

    had: int = 0
    done: list[Pair] = field(default_factory=list)
    failed: list[Outcome] = field(default_factory=list)
    postponed: list[Pair] = field(default_factory=list)
    elsewhere: int = 0


def run(
    pairs: Sequence[Pair],
    store: Store,
    engine: Engine,
    *,
    perform: Perform,
    together: Together | None = None,
    budget: Budget | None = None,
    display: Silent | None = None,
    expiry: float = EXPIRY,
    poll: float = _POLL,
) -> Summary:
    """Run every pair that has no row, append its row, and return what was done once all have one.

    Pairs that another runner holds are waited for: if it dies, they are run here. A pair that failed is tried again in
    the next sweep. What an interrupted pair left in its folder is kept, and removed once its row is there.

    Args:
        engine: a member of `ENGINES`, its jobs and address already given.
        perform: ``(pair, progress) -> row``; see `pairs.perform`.
        together: run trainings of one shape as one (with the local engine, in one process). Its rows come together; a
            sweep that was stopped goes on with the same ones.
        budget: pairs that are not expected to end in it are not started; of those that would run as one, as many are
            as are expected to end in it.
        expiry: seconds after which a runner that gives no sign of life has lost its claims.
    """
    sweep = _Sweep(list(dict.fromkeys(pairs)), store, together, budget, display or Silent(), expiry)
    with _beating(store, sweep.owner, expiry):
        while sweep.left():
            with closing(engine(sweep.claimed(), perform, report=sweep.report)) as outcomes:
                for outcome in outcomes:
                    sweep.keep(outcome)
            if others := sweep.left():
                sweep.wait(len(others))
                time.sleep(poll)
    return sweep.conclude()


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


class _Sweep:
    """A list of pairs on their way to rows."""

    def __init__(
        self,
        pairs: list[Pair],
        store: Store,
        together: Together | None,
        budget: Budget | None,
        display: Silent,
        expiry: float,
    ) -> None:
        self.pairs, self.store, self.together, self.budget = pairs, store, together, budget
        self.display, self.expiry = display, expiry
        self.owner = Owner.here()
        self.summary = Summary(had=len(pairs) - len(self.rowless()))
        self._failed: set[tuple[str, int]] = set()
        self._bundles: dict[tuple[str, int], Bundle] = {}
        self.display.begin(len(pairs), self.summary.had)

    def rowless(self) -> list[Pair]:
        """Return the pairs that have no row."""
        names = self.store.names()
        return [pair for pair in self.pairs if pair.name not in names]

    def left(self) -> list[Pair]:
        """Return the pairs that this sweep may still run, or that others are running."""
        if self.budget is None:
            return [pair for pair in self.rowless() if pair.name not in self._failed]
        fitting = [unit for unit in map(self._fitting, self._units()) if unit]
        return [pair for unit in fitting for pair in (unit.wanted if isinstance(unit, Bundle) else (unit,))]

    def claimed(self) -> Iterator[Pair | Bundle]:
        """Yield pairs, and bundles of them, that are now this runner's, each decided on when it is asked for."""
        for unit in map(self._fitting, self._units()):
            if unit is None:
                continue
            mine = self._claim_bundle(unit) if isinstance(unit, Bundle) else self._claim(unit) and unit
            if mine:
                yield mine

    def _units(self) -> Sequence[Pair | Bundle]:
        names = self.store.names()
        pairs = [pair for pair in ordered(self.pairs, names) if pair.name not in self._failed]
        return pairs if self.together is None else bundled(pairs, names, self.together, self.store.runs)

    def _fitting(self, unit: Pair | Bundle) -> Pair | Bundle | None:
        """Return what of a unit is expected to end in time; of a bundle that was begun all or nothing."""
        if self.budget is None:
            return unit
        if isinstance(unit, Pair):
            return unit if self.budget.fits(unit.experiment) else None
        if self.budget.fits(*_experiments(unit.pairs)):
            return unit
        if unit.begun:
            return None
        fewer: tuple[Pair, ...] = ()
        for pair in unit.pairs:
            fewer += (pair,) if self.budget.fits(*_experiments((*fewer, pair))) else ()
        return replace(unit, pairs=fewer, wanted=fewer) if fewer else None

    def _claim(self, pair: Pair) -> bool:
        claimed = pair.name not in self._failed and self.store.claim(*pair.name, self.owner, expiry=self.expiry)
        if claimed:
            self.display.start(pair)
        return claimed

    def _claim_bundle(self, bundle: Bundle) -> Bundle | None:
        """Return the bundle as far as it can be claimed; one that was begun as a whole or not at all."""
        mine = tuple(pair for pair in bundle.wanted if self._claim(pair))
        if len(mine) < len(bundle.wanted):
            if bundle.begun:
                for pair in mine:
                    self.store.release(self.owner, pair.name)
                return None
            bundle = Bundle(mine, mine, bundle.perform)
        if not mine:
            return None
        begin(bundle, self.store.runs)
        self._bundles |= {pair.name: bundle for pair in mine}
        return bundle

    def keep(self, outcome: Outcome) -> None:
        """Append the row of a pair, or note that it failed."""
        pair, row = outcome.pair, outcome.row
        if row is None:
            self.store.release(self.owner, pair.name)
            self._failed.add(pair.name)
            self.summary.failed.append(outcome)
        elif self.store.append(row):
            self.summary.done.append(pair)
            shutil.rmtree(self.store.runs / pair.folder, ignore_errors=True)  # on another machine it is not there
        self._close_bundle(pair)
        if row is not None and self.budget is not None:
            self.budget.estimates.add(pair.experiment, row["wall_s"], together_of(row))
        self.display.end(outcome)

    def _close_bundle(self, pair: Pair) -> None:
        """Remove the folder of a bundle once all its outcomes are kept; one without any row has failed as a whole."""
        bundle = self._bundles.pop(pair.name, None)
        if bundle is None or any(other.name in self._bundles for other in bundle.wanted):
            return
        if self.store.names() & {other.name for other in bundle.wanted}:
            shutil.rmtree(self.store.runs / bundle.folder, ignore_errors=True)

    def report(self, pair: Pair, fraction: float, words: str) -> None:
        """Pass on how far a pair is."""
        self.display.report(pair, fraction, words)

    def wait(self, count: int) -> None:
        """Say that other runners hold the rest."""
        self.display.wait(len(self.pairs) - len(self.rowless()), count)

    def conclude(self) -> Summary:
        """Return what was done."""
        rowless = self.rowless()
        self.summary.postponed = [pair for pair in rowless if pair.name not in self._failed]
        self.summary.elsewhere = len(self.pairs) - len(rowless) - self.summary.had - len(self.summary.done)
        return self.summary


def _experiments(pairs: Sequence[Pair]) -> list[Experiment]:
    return [pair.experiment for pair in pairs]


@contextmanager
def _beating(store: Store, owner: Owner, expiry: float) -> Iterator[None]:
    """Keep the claims of `owner` alive inside the block, and give up those that are left afterwards."""
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(expiry / 6):
            try:
                store.heartbeat(owner)
            except sqlite3.OperationalError as error:  # a full disk, a long lock: the next one may get through
                _log.warning("no heartbeat: %s", error)

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        store.release(owner)
