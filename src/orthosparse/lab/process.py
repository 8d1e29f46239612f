"""The process that a command runs in: one handler of Ctrl-C and SIGTERM, and how many processors it may use.

SLURM and `timeout` send SIGTERM. On a shared machine or in a container there are fewer processors than the machine has.
"""

import math
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from types import FrameType
from typing import Any

_CGROUP = Path("/sys/fs/cgroup")
# What a signal does where nobody has installed anything else.
_USUAL: dict[signal.Signals, Any] = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}


class Interrupt:
    """Takes the first signal, so that work can be saved; the next one acts as usual, and ends the process.

    Handlers are installed in a program's main thread only, and only where they replace the usual ones: a process that
    was told to ignore a signal still does. Use it as a context manager, or with `install` and `remove`.

    Args:
        first: called in the handler of the first signal; see `raise_interrupt`.
        grace: seconds within which another signal counts as the same: `timeout` sends each to the process and to its
            group.

    Attributes:
        requested: whether there was a signal.
    """

    def __init__(self, first: Callable[[], object] | None = None, *, grace: float = 1.0) -> None:
        self.requested = False
        self._first, self._grace, self._since = first, grace, 0.0
        self._installed: list[signal.Signals] = []

    def __enter__(self) -> "Interrupt":
        self.install()
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()

    def install(self) -> None:
        """Take signals from now on."""
        if threading.current_thread() is threading.main_thread():
            self._installed = [number for number, usual in _USUAL.items() if signal.getsignal(number) is usual]
            self.reinstall()

    def reinstall(self) -> None:
        """Take the signals back from libraries that took them meanwhile.

        Compilers put a handler before Python's when they are loaded (LLVM, and so Triton), and theirs loses a process
        that gets two signals at once.
        """
        for number in self._installed:
            signal.signal(number, self._handle)

    def remove(self) -> None:
        """Leave signals to their usual handlers again."""
        for number in self._installed:
            signal.signal(number, _USUAL[number])
        self._installed = []

    def _handle(self, number: int, frame: FrameType | None) -> None:
        del frame  # wherever it came
        if not self.requested:
            self.requested, self._since = True, monotonic()
            if self._first is not None:
                self._first()
        elif monotonic() - self._since >= self._grace:
            self.remove()
            os.kill(os.getpid(), number)  # as it would have been without us


def raise_interrupt() -> None:
    """Raise a KeyboardInterrupt: for `Interrupt`, where work may stop anywhere."""
    raise KeyboardInterrupt


@contextmanager
def stopped_after(seconds: float) -> Iterator[None]:
    """End the block after a time as Ctrl-C would end it, so that whatever runs in it saves its work first.

    A process that ignores Ctrl-C, as one started with ``&`` in a script does, takes it while the block runs.
    """
    over, before = threading.Event(), signal.getsignal(signal.SIGINT)

    def stop() -> None:
        over.set()
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(min(seconds, threading.TIMEOUT_MAX), stop)
    timer.daemon = True
    if before is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    timer.start()
    try:
        yield
    except KeyboardInterrupt:
        if not over.is_set():  # it was the user
            raise
    finally:
        timer.cancel()
        if before is signal.SIG_IGN:
            signal.signal(signal.SIGINT, before)


def processors(cgroup: Path = _CGROUP) -> int:
    """Return the number of processors that the scheduler and the container's quota leave to this process.

    Args:
        cgroup: folder of the control group (version 2), whose file ``cpu.max`` holds a quota and a period.
    """
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = (cgroup / "cpu.max").read_text().split()
    except FileNotFoundError:  # not a container, or not Linux
        return allowed
    return allowed if quota == "max" else min(allowed, math.ceil(int(quota) / int(period)))
