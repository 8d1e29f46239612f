"""Ray: tasks on a cluster that is there, or on one that is started here for the time of the sweep."""

import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from orthosparse.lab.process import Interrupt, processors, raise_interrupt
from orthosparse.lab.sweep.engines.local import RETRIES, Finished, Report
from orthosparse.lab.sweep.pairs import Outcome, Perform, Task, attempt

PATIENCE = 60.0  # seconds for a cluster to answer
_STORE_BYTES = 80 * 2**20  # rows are small; Ray takes no less than 75 MiB
_PROBE = "import logging, ray, sys; ray.init(address=sys.argv[1], log_to_driver=False, logging_level=logging.ERROR)"


@contextmanager
def connected(address: str | None, jobs: int | None, *, patience: float = PATIENCE) -> Iterator[Any]:
    """Yield the module `ray`, connected; a connection that is there already is used and left.

    Raises:
        ImportError: Ray is not installed.
        ConnectionError: no cluster answers at `address` within `patience` seconds.
    """
    try:
        import ray
    except ImportError as error:
        raise ImportError("engine: ray is not installed; pip install 'orthosparse[ray]'") from error
    if ray.is_initialized():
        yield ray
        return
    # Ray logs how it starts, and hands on what its workers print: neither belongs into a display of progress.
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    handler = signal.getsignal(signal.SIGTERM)
    if address is None:
        # Its usage statistics would go over the net, and want an answer first.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        cpus = jobs or processors()
        ray.init(address="local", num_cpus=cpus, object_store_memory=_STORE_BYTES, include_dashboard=False, **quiet)
    else:
        _check_answers(address, patience)
        ray.init(address=address, **quiet)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)  # Ray's own ends the program on the spot
    try:
        yield ray
    finally:
        ray.shutdown()


def _check_answers(address: str, patience: float) -> None:
    """Raise unless a cluster answers: first whether anybody listens, then, in a process that can be killed, Ray itself.

    Ray's own attempt may take minutes, and where it gives up it ends its process.
    """
    if address != "auto":
        _check_listens(address, patience)
    command = [sys.executable, "-c", _PROBE, address]
    try:
        probe = subprocess.run(command, capture_output=True, text=True, timeout=patience, check=False)
    except subprocess.TimeoutExpired:
        raise _no_answer(address, f"nothing came within {patience:g} s") from None
    if probe.returncode != 0:
        lines = [line for line in probe.stderr.splitlines() if line.strip()]
        raise _no_answer(address, lines[-1] if lines else f"exit code {probe.returncode}")


def _check_listens(address: str, patience: float) -> None:
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not (host and colon and port.isdigit() and int(port) < 2**16):
        raise ValueError(f"address: expected HOST:PORT, ray://HOST:PORT or auto; got {address!r}")
    try:
        socket.create_connection((host, int(port)), timeout=min(patience, 10.0)).close()
    except OSError as error:
        raise _no_answer(address, str(error)) from error


def _no_answer(address: str, why: str) -> ConnectionError:
    return ConnectionError(
        f"address: no Ray cluster answers at {address} ({why}); `ray start --head` starts one, and without --address "
        "one is started on this machine for the time of the run"
    )


_POLL = 0.5  # seconds between two reads of the board


def ray(
    perform: Perform,
    *,
    report: Report,
    jobs: int | None = None,
    address: str | None = None,
    gpus: float | None = None,
) -> "_Cluster":
    """Return an engine that runs each task on the cluster; it connects when the first one is started.

    A task whose worker or machine is lost is run again; where the folder of the runs lies on a file system that all
    machines see, it resumes from its checkpoint. The folder of the data is the same path on every machine.

    Args:
        jobs: tasks at once, a processor each; by default as many as the cluster has room for.
        address: of a running cluster (``HOST:PORT``, ``ray://HOST:PORT`` or ``auto``); None starts one on this machine.
        gpus: the share of a GPU that a task gets if it can use one; by default an equal share of all there are.

    Starting a task raises:
        ImportError: Ray is not installed.
        ConnectionError: no cluster answers at the address.
    """
    return _Cluster(perform, report, jobs, address, gpus)


class _Cluster:
    """The tasks under way on a cluster, and the board on which they write how far they are."""

    def __init__(
        self, perform: Perform, report: Report, jobs: int | None, address: str | None, gpus: float | None
    ) -> None:
        self._perform, self._report = perform, report
        self._jobs, self._address, self._gpus = jobs, address, gpus
        self._tasks: dict[Any, tuple[int, Task]] = {}
        self._stack = ExitStack()
        self._ray: Any = None
        self._started, self._most = 0, 1

    def __enter__(self) -> "_Cluster":
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    @property
    def has_room(self) -> bool:
        return len(self._tasks) < self._most

    @property
    def running(self) -> int:
        return len(self._tasks)

    def start(self, task: Task) -> None:
        """Hand a task to the cluster."""
        if self._ray is None:
            self._connect()
        self._started += 1
        gpus = self._share if any(pair.experiment.accelerated for pair in task.pairs) else 0
        remote = self._remote.options(num_cpus=1, num_gpus=gpus, max_retries=RETRIES)
        reference = remote.remote(self._perform, task, self._started, self._board)
        self._tasks[reference] = self._started, task

    def wait(self) -> Finished:
        """Pass on how far the tasks are, and return what has come in after waiting a moment for it."""
        self._look()
        references, _ = self._ray.wait(list(self._tasks), timeout=_POLL)
        return [self._finished(reference) for reference in references]

    def _connect(self) -> None:
        self._ray = self._stack.enter_context(connected(self._address, self._jobs))
        self._stack.enter_context(Interrupt(raise_interrupt))
        self._stack.callback(self._cancel)
        resources = self._ray.cluster_resources()
        found = resources.get("CPU", 1.0), resources.get("GPU", 0.0)
        self._share, self._most = _shares(*found, self._jobs, self._gpus)
        # Takes no processor from the tasks, and comes back, empty, when it is lost with its machine.
        self._board = self._ray.remote(_Board).options(num_cpus=0, max_restarts=-1).remote()
        self._remote = self._ray.remote(_run)

    def _look(self) -> None:
        tasks = dict(self._tasks.values())
        try:
            states = self._ray.get(self._board.read.remote(), timeout=_POLL)
        except self._ray.exceptions.RayError:  # slow or lost: the display waits, the work goes on
            return
        for number, state in states.items():
            if number in tasks:
                self._report(tasks[number], *state)

    def _finished(self, reference: Any) -> tuple[Task, list[Outcome]]:
        _, task = self._tasks.pop(reference)
        try:
            return task, self._ray.get(reference)
        except self._ray.exceptions.RayError as error:  # lost once too often
            lines = str(error).strip().splitlines() or [""]
            why = f"{type(error).__name__}: {lines[0]}"
            return task, [Outcome(pair, error=why, trace=str(error)) for pair in task.missing]

    def _cancel(self) -> None:
        for reference in self._tasks:
            self._ray.cancel(reference, force=True)
        self._tasks = {}


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


class _Board:
    """Keeps the latest word of each task until it is read."""

    def __init__(self) -> None:
        self.states: dict[int, tuple[float, str]] = {}

    def write(self, number: int, fraction: float, words: str) -> None:
        self.states[number] = fraction, words

    def read(self) -> dict[int, tuple[float, str]]:
        states, self.states = self.states, {}
        return states


def _run(perform: Perform, task: Task, number: int, board: Any) -> list[Outcome]:
    return attempt(perform, task, partial(board.write.remote, number))
