"""Times that can be compared: of calls taken in turn, and of code in a fresh process."""

import math
import subprocess
import sys
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any


def in_turn(
    calls: Mapping[str, Callable[[], Any]], *, rounds: int = 9, block: float = 0.003
) -> dict[str, tuple[float, float]]:
    """Return seconds a call and the ratio to the first call's, for each of `calls`.

    In every round each call is repeated for about `block` seconds, one after the other, so that all of them meet the
    machine in the same moods; the shortest round counts, which the fewest other programs have disturbed.
    """
    repeats = {name: max(1, int(block / _seconds(call, 1))) for name, call in calls.items()}
    times = dict.fromkeys(calls, math.inf)
    for _ in range(rounds):
        for name, call in calls.items():
            times[name] = min(times[name], _seconds(call, repeats[name]))
    base = times[next(iter(calls))]
    return {name: (taken, taken / base) for name, taken in times.items()}


def shortest(call: Callable[[], Any], rounds: int, *, clock: Callable[[], float] = perf_counter) -> float:
    """Return the shortest time of a call, in seconds of `clock`."""
    return min(_seconds(call, 1, clock) for _ in range(rounds))


def fresh(code: str) -> list[float]:
    """Run Python code in a new process and return the numbers that it printed."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return [float(number) for number in done.stdout.split()]


def _seconds(call: Callable[[], Any], repeats: int, clock: Callable[[], float] = perf_counter) -> float:
    start = clock()
    for _ in range(repeats):
        call()
    return (clock() - start) / repeats
