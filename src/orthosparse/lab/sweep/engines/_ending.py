"""Ctrl-C, and the signal that ends a job (SLURM and `timeout` send it), where processes have work to save."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from types import FrameType
from typing import Any

# What a signal does where nobody has asked for anything else.
_USUAL: dict[signal.Signals, Any] = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
GRACE = 1.0  # seconds in which another one is still the same: `timeout` sends each to the process and to its group


@contextmanager
def one_interrupt() -> Iterator[None]:
    """Raise KeyboardInterrupt where the first of the signals comes inside the block; one that insists acts as usual.

    They are heard in a program's main thread only, and only where nobody else listens to them or ignores them.
    """
    in_main = threading.current_thread() is threading.main_thread()
    heard = [number for number, usual in _USUAL.items() if in_main and signal.getsignal(number) is usual]
    since: list[float] = []

    def note(number: int, frame: FrameType | None) -> None:
        del frame  # wherever it came
        if not since:
            since.append(monotonic())
            raise KeyboardInterrupt
        if monotonic() - since[0] >= GRACE:
            give_back()
            os.kill(os.getpid(), number)

    def give_back() -> None:
        for number in heard:
            signal.signal(number, _USUAL[number])

    for number in heard:
        signal.signal(number, note)
    try:
        yield
    finally:
        give_back()
