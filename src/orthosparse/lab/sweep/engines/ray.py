"""Ray: a task for each pair, on a cluster that is there or on one started here for the time of the sweep."""

from collections.abc import Generator, Iterable, Iterator
from functools import partial
from itertools import chain
from typing import Any

from orthosparse.lab.signals import Interrupt, raise_interrupt
from orthosparse.lab.sweep.engines._cluster import connected
from orthosparse.lab.sweep.engines._outcome import Outcome, Perform, Report, attempt
from orthosparse.lab.sweep.pairs import Pair

RETRIES = 2
_LOOK = 0.5  # seconds between two looks at the board


def ray(
    pairs: Iterable[Pair],
    perform: Perform,
    *,
    report: Report,
    jobs: int | None = None,
    address: str | None = None,
    gpus: float | None = None,
) -> Generator[Outcome, None, None]:
    """Yield the outcome of each pair as it comes.

    A pair whose worker or machine is lost is run again; where the folder of the runs lies on a file system that all
    machines see, it goes on from its checkpoint. The folder of the data is the same path on every machine.

    Args:
        jobs: tasks at once, a processor each; by default as many as the cluster has room for.
        address: of a running cluster (``HOST:PORT``, ``ray://HOST:PORT`` or ``auto``); None starts one on this machine.
        gpus: the share of a GPU that a task gets if it can use one; by default an equal share of all there are.

    Raises:
        ImportError: Ray is not installed.
        ConnectionError: no cluster answers at the address.
    """
    source = iter(pairs)
    if (first := next(source, None)) is None:  # a cluster is not started for nothing
        return
    with connected(address, jobs) as cluster, Interrupt(raise_interrupt):
        resources = cluster.cluster_resources()
        share, most = _shares(resources.get("CPU", 1.0), resources.get("GPU", 0.0), jobs, gpus)
        tasks = _Tasks(cluster, perform, share)
        try:
            yield from _outcomes(chain([first], source), tasks, report, most)
        finally:
            tasks.cancel()


def _shares(cpus: float, gpus: float, jobs: int | None, share: float | None) -> tuple[float, int]:
    """Return what part of a GPU a task gets, and how many tasks run at once.

    Example:
        >>> _shares(16, 2, 8, None), _shares(16, 2, None, 0.5), _shares(4, 0, None, None), _shares(8, 4, 2, None)
        ((0.25, 8), (0.5, 4), (0.0, 4), (1.0, 2))
    """
    if not gpus:
        return 0.0, jobs or max(1, int(cpus))
    if share is None:
        share = min(1.0, gpus / jobs) if jobs else 1.0
    room = int(gpus / share) if share else int(cpus)
    return share, jobs or max(1, min(int(cpus), room))


class _Tasks:
    """The tasks under way on a cluster, and the board on which they say how far they are."""

    def __init__(self, cluster: Any, perform: Perform, share: float) -> None:
        self.cluster, self.perform, self.share = cluster, perform, share
        self.running: dict[Any, tuple[int, Pair]] = {}
        # Takes no processor from the tasks, and comes back, empty, when it is lost with its machine.
        self._board = cluster.remote(_Board).options(num_cpus=0, max_restarts=-1).remote()
        self._task = cluster.remote(_task)
        self._started = 0

    def start(self, pair: Pair) -> None:
        """Hand a pair to the cluster."""
        self._started += 1
        gpus = self.share if pair.experiment.accelerated else 0
        task = self._task.options(num_cpus=1, num_gpus=gpus, max_retries=RETRIES)
        reference = task.remote(self.perform, pair, self._started, self._board)
        self.running[reference] = self._started, pair

    def ended(self) -> list[Outcome]:
        """Return what has come in, after waiting a moment for it."""
        references, _ = self.cluster.wait(list(self.running), timeout=_LOOK)
        return [self._outcome(reference) for reference in references]

    def states(self) -> list[tuple[Pair, float, str]]:
        """Return how far the running pairs are, as far as they have said so since the last time."""
        pairs = dict(self.running.values())
        try:
            told = self.cluster.get(self._board.read.remote(), timeout=_LOOK)
        except self.cluster.exceptions.RayError:  # slow or lost: the display waits, the work goes on
            return []
        return [(pairs[number], *state) for number, state in told.items() if number in pairs]

    def cancel(self) -> None:
        """End what is still running."""
        for reference in self.running:
            self.cluster.cancel(reference, force=True)
        self.running = {}

    def _outcome(self, reference: Any) -> Outcome:
        _, pair = self.running.pop(reference)
        try:
            outcome: Outcome = self.cluster.get(reference)
        except self.cluster.exceptions.RayError as error:  # lost once too often
            lines = str(error).strip().splitlines() or [""]
            return Outcome(pair, error=f"{type(error).__name__}: {lines[0]}", trace=str(error))
        return outcome


def _outcomes(pairs: Iterator[Pair], tasks: _Tasks, report: Report, most: int) -> Generator[Outcome, None, None]:
    while True:
        while len(tasks.running) < most and (pair := next(pairs, None)) is not None:
            tasks.start(pair)
        if not tasks.running:
            return
        for state in tasks.states():
            report(*state)
        yield from tasks.ended()


class _Board:
    """Keeps the latest word of each task until it is read."""

    def __init__(self) -> None:
        self.states: dict[int, tuple[float, str]] = {}

    def tell(self, number: int, fraction: float, words: str) -> None:
        self.states[number] = fraction, words

    def read(self) -> dict[int, tuple[float, str]]:
        states, self.states = self.states, {}
        return states


def _task(perform: Perform, pair: Pair, number: int, board: Any) -> Outcome:
    return attempt(perform, pair, partial(board.tell.remote, number))
