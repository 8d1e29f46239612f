"""Ctrl-C, and the signal that ends a job, wait until a step has ended: the first asks, the second insists."""

import os
import signal
import threading
from time import monotonic
from types import FrameType
from typing import Any

# What a signal does where nobody has asked for anything else.
_USUAL = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}


class Interrupt:
    """Notes an interrupt instead of letting it end an update in the middle, between `listen` and `rest`.

    It listens in a program's main thread only, and only to signals that would have ended it: a process that was told to
    ignore one still does.

    Args:
        grace: seconds in which another one is still the same: `timeout` sends each to the process and to its group.

    Attributes:
        asked: whether there was an interrupt; the next one ends the process at once.
    """

    def __init__(self, *, grace: float = 1.0) -> None:
        self.asked = False
        self._grace, self._since = grace, 0.0
        self._before: dict[signal.Signals, Any] = {}

    def listen(self) -> None:
        """Take interrupts from now on."""
        if threading.current_thread() is threading.main_thread():
            heard = [number for number, usual in _USUAL.items() if signal.getsignal(number) is usual]
            self._before = {number: signal.signal(number, self._note) for number in heard}

    def insist(self) -> None:
        """Take the signals back from libraries that took them meanwhile.

        Compilers put a handler before Python's when they are loaded (LLVM, and so Triton), and theirs loses a process
        that gets two signals at once.
        """
        for number in self._before:
            signal.signal(number, self._note)

    def rest(self) -> None:
        """Give the signals back."""
        for number, before in self._before.items():
            signal.signal(number, before)
        self._before = {}

    def _note(self, number: int, frame: FrameType | None) -> None:
        del frame  # wherever it came
        if not self.asked:
            self.asked, self._since = True, monotonic()
        elif monotonic() - self._since >= self._grace:
            self.rest()
            os.kill(os.getpid(), number)  # as it would have been without us
