"""Processes of this machine that run pairs, one at a time each, and are replaced when they die."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from multiprocessing.connection import Connection, wait
from typing import Any

from orthosparse.lab.sweep.engines._outcome import Outcome, Perform, attempt
from orthosparse.lab.sweep.pairs import Pair

# A fresh interpreter, not a copy of this one: CUDA and threads do not survive a fork.
_SPAWN = multiprocessing.get_context("spawn")

# From a process: how far its pair is, or what came of it; None for its death.
Message = tuple[float, str] | Outcome | None


_PATIENCE = 20.0  # seconds in which a process that is told to end may save what it has


class Workers:
    """Up to `jobs` processes, started as they are needed; leaving the block ends them."""

    def __init__(self, perform: Perform, jobs: int) -> None:
        self.perform, self.jobs = perform, jobs
        self.busy: dict[Connection, tuple[Any, Pair]] = {}
        self._idle: list[tuple[Connection, Any]] = []

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *error: object) -> None:
        every = [*self._idle, *((pipe, process) for pipe, (process, _) in self.busy.items())]
        for _, process in every:
            process.terminate()
        for connection, process in every:
            process.join(_PATIENCE)
            process.kill()
            process.join()
            connection.close()
        self._idle, self.busy = [], {}

    @property
    def free(self) -> bool:
        """Whether a pair can be given."""
        return len(self.busy) < self.jobs

    def give(self, pair: Pair) -> None:
        """Let a process run a pair."""
        connection, process = self._idle.pop() if self._idle else self._started()
        connection.send(pair)
        self.busy[connection] = process, pair

    def messages(self) -> Iterator[tuple[Pair, Message]]:
        """Wait until a process has something to say, and yield what those that have do."""
        for ready in wait(list(self.busy)):
            assert isinstance(ready, Connection)
            process, pair = self.busy[ready]
            try:
                message = ready.recv()
            except (EOFError, ConnectionError):  # the process died
                del self.busy[ready]
                ready.close()
                process.join()
                message = None
            if isinstance(message, Outcome):
                del self.busy[ready]
                self._idle.append((ready, process))
            yield pair, message

    def _started(self) -> tuple[Connection, Any]:
        ours, theirs = _SPAWN.Pipe()
        threads = max(1, (os.cpu_count() or 1) // self.jobs)
        # No daemon: those may not start the processes that decode images.
        process = _SPAWN.Process(target=_work, args=(theirs, self.perform, threads))
        process.start()
        theirs.close()  # or its end would not be seen here
        return ours, process


def _work(connection: Connection, perform: Perform, threads: int) -> None:
    """Run pairs as they come, and end when nobody sends any more."""
    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is for the parent, which ends this process
    torch.set_num_threads(threads)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    while True:
        try:
            pair = connection.recv()
            connection.send(attempt(perform, pair, lambda *state: connection.send(state)))
        except (EOFError, KeyboardInterrupt):  # nobody sends any more; or a training has saved itself, told to end
            return


def _end_with_parent() -> None:
    """End this process when its parent was killed: nobody waits for the pair, and another runner may take it."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "started by Workers"
    parent.join()
    os._exit(1)
