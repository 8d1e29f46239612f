"""How far long work is, in a log: a line now and then, not one for every step."""

from collections.abc import Callable
from time import monotonic

MINUTE = 60.0


class Paced:
    """Passes words on to `tell`, one line a minute at most, the first of them after a minute.

    Example:
        >>> paced = Paced(print, seconds=0)
        >>> paced("one network", 0.25, "epoch 5 of 20")
        one network: 25 %, epoch 5 of 20
    """

    def __init__(self, tell: Callable[[str], object], *, seconds: float = MINUTE) -> None:
        self._tell, self._seconds, self._last = tell, seconds, monotonic()

    def __call__(self, name: str, fraction: float, words: str) -> None:
        """Say how far something is, if it is time."""
        if monotonic() - self._last >= self._seconds:
            self._last = monotonic()
            self._tell(", ".join(filter(None, [f"{name}: {fraction:.0%}".replace("%", " %"), words])))
