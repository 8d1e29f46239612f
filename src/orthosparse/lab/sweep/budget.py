"""Sweeps in a given time: what still fits, and a clean stop when the time is over."""

import re
from collections.abc import Callable, Iterable, Sequence
from time import monotonic
from typing import Any

from orthosparse.lab.process import stopped_after
from orthosparse.lab.sweep.display import Display
from orthosparse.lab.sweep.estimates import Estimates
from orthosparse.lab.sweep.pairs import Outcome, Pair, Perform
from orthosparse.lab.sweep.runner import Summary, run
from orthosparse.lab.sweep.store import Store

_UNITS = {"h": 3600, "m": 60, "s": 1}


def seconds_of(text: str) -> float:
    """Return the seconds of a time like ``25m``, ``1h30m`` or ``90s``.

    Raises:
        ValueError: it is not one.

    Example:
        >>> seconds_of("25m"), seconds_of("1h30m")
        (1500.0, 5400.0)
    """
    parts = re.fullmatch(r"(?=.)(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", text.strip())
    total = (
        sum(int(part or 0) * unit for part, unit in zip(parts.groups(), _UNITS.values(), strict=True)) if parts else 0
    )
    if total <= 0:
        raise ValueError(f"budget: expected a time like 25m, 1h30m or 90s; got {text!r}")
    return float(total)


class Budget:
    """The time that is left.

    Attributes:
        resumes: whether a stack that was begun is resumed even if it is not expected to end in time.
    """

    def __init__(self, seconds: float, estimates: Estimates, *, resumes: bool = False) -> None:
        self._end, self.estimates, self.resumes = monotonic() + seconds, estimates, resumes

    def fits(self, pairs: Iterable[Pair], *, stacked: bool = False) -> bool:
        """Return whether a run of pairs that starts now is expected to end in time."""
        seconds = self.estimates.seconds((pair.experiment for pair in pairs), stacked=stacked)
        return monotonic() + seconds <= self._end


def run_for(
    seconds: float,
    steps: Sequence[tuple[Sequence[Pair], int | None]],
    store: Store,
    engine: Callable[..., Any],
    *,
    perform: Perform,
    estimates: Estimates,
    display: Display | None = None,
) -> Summary:
    """Run steps in their order until the time is over, stop cleanly, and return what was done.

    What was begun in an earlier call is resumed, and what is expected to end in time is run first. Then the first pair
    that is left is begun all the same: once the time is over it keeps its checkpoint, and the next call resumes it.

    Args:
        steps: pairs of a sweep, and how many networks of the same shape may train in one stack; None trains each alone.
    """
    pairs = list(dict.fromkeys(pair for each, _ in steps for pair in each))
    before, failed = store.names(), dict[tuple[str, int], Outcome]()
    with stopped_after(seconds):
        for budget in (Budget(seconds, estimates, resumes=True), None):
            for each, together in steps:
                left = [pair for pair in each if pair.name not in failed]
                found = run(left, store, engine, perform=perform, together=together, budget=budget, display=display)
                failed |= {outcome.pair.name: outcome for outcome in found.failed}
    names = store.names()
    return Summary(
        had=sum(pair.name in before for pair in pairs),
        done=[pair for pair in pairs if pair.name in names - before],
        failed=list(failed.values()),
        postponed=[pair for pair in pairs if pair.name not in names and pair.name not in failed],
    )
