"""Runs the pairs that have no row yet, the most telling first, and keeps out of the way of other runners."""

import logging
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from orthosparse.lab.sweep.display import Display
from orthosparse.lab.sweep.pairs import Outcome, Pair, Perform, Task
from orthosparse.lab.sweep.store import EXPIRY, Owner, Store
from orthosparse.lab.sweep.tasks import begin, ordered, stacked

if TYPE_CHECKING:
    from orthosparse.lab.sweep.budget import Budget

_POLL = 1.0  # seconds between two reads of what other runners have done
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
    engine: Callable[..., Any],
    *,
    perform: Perform,
    together: int | None = None,
    budget: "Budget | None" = None,
    display: Display | None = None,
    expiry: float = EXPIRY,
    poll: float = _POLL,
) -> Summary:
    """Run every pair that has no row, append its row, and return what was done once all have one.

    Pairs that another runner holds are waited for: if it dies, they are run here. A pair that failed is tried again in
    the next sweep. What an interrupted task left in its folder is kept, and removed once its rows are there.

    Args:
        engine: a member of `ENGINES`, its jobs and address already given.
        perform: see `pairs.perform`.
        together: train so many networks of the same shape at most in one stack. Their rows come together; a sweep that
            was stopped resumes the same stacks.
        budget: pairs that are not expected to end in it are not started; of those that would run in one stack, as many
            are as are expected to end in it.
        expiry: seconds after which a runner that gives no sign of life has lost its claims.
    """
    sweep = _Sweep(list(dict.fromkeys(pairs)), store, together, budget, display or Display(quiet=True), expiry)
    with _heartbeats(store, sweep.owner, expiry), engine(perform, report=sweep.display.report) as running:
        while sweep.left():
            tasks = sweep.claimed()
            while True:
                while running.has_room and (task := next(tasks, None)) is not None:
                    running.start(task)
                if not running.running:
                    break
                for task, outcomes in running.wait():
                    sweep.keep(task, outcomes)
            if others := sweep.left():
                sweep.display.wait(len(sweep.pairs) - len(sweep.rowless()), len(others))
                time.sleep(poll)
    return sweep.conclude()


class _Sweep:
    """A list of pairs on their way to rows."""

    def __init__(
        self,
        pairs: list[Pair],
        store: Store,
        together: int | None,
        budget: "Budget | None",
        display: Display,
        expiry: float,
    ) -> None:
        self.pairs, self.store, self.together, self.budget = pairs, store, together, budget
        self.display, self.expiry = display, expiry
        self.owner = Owner.here()
        self.summary = Summary(had=len(pairs) - len(self.rowless()))
        self._failed: set[tuple[str, int]] = set()
        self.display.begin(len(pairs), self.summary.had)

    def rowless(self) -> list[Pair]:
        """Return the pairs that have no row."""
        names = self.store.names()
        return [pair for pair in self.pairs if pair.name not in names]

    def left(self) -> list[Pair]:
        """Return the pairs that this sweep may still run, or that others are running."""
        return [pair for task in map(self._fitting, self._tasks()) if task for pair in task.missing]

    def claimed(self) -> Iterator[Task]:
        """Yield tasks that are now this runner's, each decided on when it is asked for."""
        for task in map(self._fitting, self._tasks()):
            if task is not None and (mine := self._claim(task)) is not None:
                self.display.start(mine)
                yield mine

    def keep(self, task: Task, outcomes: Sequence[Outcome]) -> None:
        """Append the rows of a task, or note that pairs failed; without any row it keeps its folder."""
        for outcome in outcomes:
            pair, row = outcome.pair, outcome.row
            if row is None:
                self.store.release(self.owner, pair.name)
                self._failed.add(pair.name)
                self.summary.failed.append(outcome)
                continue
            if self.store.append(row):
                self.summary.done.append(pair)
            if self.budget is not None:
                self.budget.estimates.add(pair.experiment, row, row["wall_s"])
            self._remove(pair.folder)
        if any(outcome.row for outcome in outcomes):
            self._remove(task.folder)
        self.display.end(task, outcomes)

    def conclude(self) -> Summary:
        """Return what was done."""
        rowless = self.rowless()
        self.summary.postponed = [pair for pair in rowless if pair.name not in self._failed]
        self.summary.elsewhere = len(self.pairs) - len(rowless) - self.summary.had - len(self.summary.done)
        return self.summary

    def _tasks(self) -> list[Task]:
        names = self.store.names()
        pairs = [pair for pair in ordered(self.pairs, names) if pair.name not in self._failed]
        if self.together is None:
            return [Task((pair,), (pair,)) for pair in pairs]
        return stacked(pairs, names, self.together, self.store.runs)

    def _fitting(self, task: Task) -> Task | None:
        """Return what of a task is expected to end in time; of one that was begun all or nothing."""
        if self.budget is None or (task.begun and self.budget.resumes):
            return task
        if self.budget.fits(task.pairs, stacked=task.stacked):
            return task
        fewer: tuple[Pair, ...] = ()
        for pair in () if task.begun else task.pairs:
            more = (*fewer, pair)
            fewer = more if self.budget.fits(more, stacked=task.stacked) else fewer
        return replace(task, pairs=fewer, missing=fewer) if fewer else None

    def _claim(self, task: Task) -> Task | None:
        """Return the task as far as it can be claimed; one that was begun as a whole or not at all."""
        mine = tuple(p for p in task.missing if self.store.claim(*p.name, self.owner, expiry=self.expiry))
        if task.begun and len(mine) < len(task.missing):
            for pair in mine:
                self.store.release(self.owner, pair.name)
            return None
        if not mine:
            return None
        if len(mine) < len(task.missing):
            task = replace(task, pairs=mine, missing=mine)
        if task.stacked:
            begin(task, self.store.runs)
        return task

    def _remove(self, folder: str) -> None:
        shutil.rmtree(self.store.runs / folder, ignore_errors=True)  # on another machine it is not there


@contextmanager
def _heartbeats(store: Store, owner: Owner, expiry: float) -> Iterator[None]:
    """Keep the claims of `owner` alive inside the block, and give up those that are left afterwards."""
    stopped = threading.Event()

    def beat() -> None:
        while not stopped.wait(expiry / 6):
            try:
                store.heartbeat(owner)
            except sqlite3.OperationalError as error:  # a full disk, a long lock: the next one may get through
                _log.warning("no heartbeat: %s", error)

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()
        store.release(owner)
