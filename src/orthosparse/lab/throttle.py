"""Progress lines in a log, at most one a minute."""

from collections.abc import Callable
from time import monotonic

MINUTE = 60.0


class Throttle:
    """Writes a progress line with `write`, at most one a minute, the first after a minute.

    Example:
        >>> throttle = Throttle(print, seconds=0)
        >>> throttle("one network", 0.25, "epoch 5 of 20")
        one network: 25 %, epoch 5 of 20
    """

    def __init__(self, write: Callable[[str], object], *, seconds: float = MINUTE) -> None:
        self._write, self._seconds, self._last = write, seconds, monotonic()

    def __call__(self, name: str, fraction: float, words: str) -> None:
        """Write how far something is, if a minute has passed."""
        if monotonic() - self._last >= self._seconds:
            self._last = monotonic()
            self._write(", ".join(filter(None, [f"{name}: {fraction:.0%}".replace("%", " %"), words])))
