"""Ctrl-C that waits until a step has ended: the first one asks, the second one insists."""

import signal
import threading
from types import FrameType
from typing import Any


class Interrupt:
    """Notes an interrupt instead of raising it in the middle of an update, between `listen` and `rest`.

    It listens in a program's main thread only, and only where an interrupt would have raised: a process that was told
    to ignore it still does.

    Attributes:
        asked: whether there was an interrupt; the next one raises at once.
    """

    def __init__(self) -> None:
        self.asked = False
        self._before: Any = None

    def listen(self) -> None:
        """Take interrupts from now on."""
        main = threading.current_thread() is threading.main_thread()
        if main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._before = signal.signal(signal.SIGINT, self._note)

    def rest(self) -> None:
        """Give the signal back."""
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
            self._before = None

    def _note(self, number: int, frame: FrameType | None) -> None:
        del number, frame  # one signal, wherever it came
        self.asked = True
        self.rest()
