"""Local: tasks one after the other in this process, or side by side in processes of this machine."""

import multiprocessing
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection, wait
from typing import Any

from orthosparse.lab.process import Interrupt, processors, raise_interrupt
from orthosparse.lab.sweep.pairs import Outcome, Perform, Task, attempt

Report = Callable[[Task, float, str], None]
Finished = list[tuple[Task, list[Outcome]]]
RETRIES = 2
_PATIENCE = 20.0  # seconds in which a process that is asked to stop may save what it has
# A fresh interpreter, not a copy of this one: CUDA and threads do not survive a fork.
_SPAWN = multiprocessing.get_context("spawn")


def local(
    perform: Perform,
    *,
    report: Report,
    jobs: int | None = None,
    address: str | None = None,
    gpus: float | None = None,
) -> Any:
    """Return an engine of `jobs` processes; without a number, of this one.

    Raises:
        ValueError: an address or a share of a GPU, which belong to a cluster.
    """
    if address is not None or gpus is not None:
        raise ValueError("engine: local takes no address and no share of a GPU; take --engine ray")
    return _Here(perform, report) if jobs is None or jobs == 1 else _Processes(perform, report, jobs)


class _Here:
    """Runs one task at a time, in this process."""

    def __init__(self, perform: Perform, report: Report) -> None:
        self._perform, self._report = perform, report
        self._tasks: list[Task] = []

    def __enter__(self) -> "_Here":
        return self

    def __exit__(self, *error: object) -> None:
        self._tasks = []

    @property
    def has_room(self) -> bool:
        return not self._tasks

    @property
    def running(self) -> int:
        return len(self._tasks)

    def start(self, task: Task) -> None:
        self._tasks.append(task)

    def wait(self) -> Finished:
        task = self._tasks.pop()
        return [(task, attempt(self._perform, task, partial(self._report, task)))]


class _Processes:
    """Up to `jobs` processes, started as they are needed, and replaced when they die."""

    def __init__(self, perform: Perform, report: Report, jobs: int) -> None:
        self._perform, self._report, self._jobs = perform, report, jobs
        self._busy: dict[Connection, tuple[Any, Task]] = {}
        self._idle: list[tuple[Connection, Any]] = []
        self._deaths: Counter[Task] = Counter()
        self._interrupt = Interrupt(raise_interrupt)

    def __enter__(self) -> "_Processes":
        self._interrupt.install()
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self._end()
        finally:
            self._interrupt.remove()  # they have had their time to save

    @property
    def has_room(self) -> bool:
        return len(self._busy) < self._jobs

    @property
    def running(self) -> int:
        return len(self._busy)

    def start(self, task: Task) -> None:
        connection, process = self._idle.pop() if self._idle else self._started()
        connection.send(task)
        self._busy[connection] = process, task

    def wait(self) -> Finished:
        """Wait until a process has something to say, and pass on how far its task is or return what came of it."""
        finished: Finished = []
        for ready in wait(list(self._busy)):
            assert isinstance(ready, Connection)
            process, task = self._busy[ready]
            try:
                message = ready.recv()
            except (EOFError, ConnectionError):
                finished += self._died(ready)
                continue
            if isinstance(message, list):
                del self._busy[ready]
                self._idle.append((ready, process))
                finished.append((task, message))
            else:
                self._report(task, *message)
        return finished

    def _died(self, connection: Connection) -> Finished:
        """Start the task of a dead process again, or give it up."""
        process, task = self._busy.pop(connection)
        connection.close()
        process.join()
        self._deaths[task] += 1
        if self._deaths[task] <= RETRIES:
            self.start(task)
            return []
        error = f"RuntimeError: its process died {self._deaths[task]} times"
        return [(task, [Outcome(pair, error=error) for pair in task.missing])]

    def _started(self) -> tuple[Connection, Any]:
        ours, theirs = _SPAWN.Pipe()
        threads = max(1, processors() // self._jobs)
        # No daemon: those may not start the processes that decode images.
        process = _SPAWN.Process(target=_work, args=(theirs, self._perform, threads))
        process.start()
        theirs.close()  # or its end would not be seen here
        return ours, process

    def _end(self) -> None:
        every = [*self._idle, *((connection, process) for connection, (process, _) in self._busy.items())]
        for _, process in every:
            process.terminate()
        for connection, process in every:
            process.join(_PATIENCE)
            process.kill()
            process.join()
            connection.close()
        self._idle, self._busy = [], {}


def _work(connection: Connection, perform: Perform, threads: int) -> None:
    """Run tasks as they come, and end when nobody sends any more."""
    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is for the parent, which ends this process
    torch.set_num_threads(threads)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    while True:
        try:
            task = connection.recv()
            connection.send(attempt(perform, task, lambda *state: connection.send(state)))
        except (EOFError, KeyboardInterrupt):  # nobody sends any more; or a training was asked to stop, and has saved
            return


def _end_with_parent() -> None:
    """End this process when its parent was killed: nobody waits for the task, and another runner may take it."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "started by _Processes"
    parent.join()
    os._exit(1)
