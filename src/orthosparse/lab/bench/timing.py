"""Times that can be compared: of calls taken in turn, and of code in a fresh process."""

import math
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from time import perf_counter, thread_time
from typing import Any

import torch

Found = tuple[str, float, float | None, str]  # a case, a ratio, what it has to be at least, and the times behind it


def _seconds(call: Callable[[], Any], repeats: int, clock: Callable[[], float] = perf_counter) -> float:
    start = clock()
    for _ in range(repeats):
        call()
    return (clock() - start) / repeats


def in_turn(
    calls: Mapping[str, Callable[[], Any]],
    *,
    rounds: int = 9,
    block: float = 0.003,
    measure: Callable[[Callable[[], Any], int], float] = _seconds,
) -> dict[str, tuple[float, float]]:
    """Return seconds a call and the ratio to the first call's, for each of `calls`, which `measure` repeats and times.

    In every round each call is repeated for about `block` seconds, one after the other, so that all of them meet the
    machine in the same moods; the shortest round counts, which the fewest other programs have disturbed.
    """
    repeats = {name: max(1, int(block / measure(call, 1))) for name, call in calls.items()}
    times = dict.fromkeys(calls, math.inf)
    for _ in range(rounds):
        for name, call in calls.items():
            times[name] = min(times[name], measure(call, repeats[name]))
    base = times[next(iter(calls))]
    return {name: (taken, taken / base) for name, taken in times.items()}


def shortest(call: Callable[[], Any], rounds: int, *, clock: Callable[[], float] = perf_counter) -> float:
    """Return the shortest time of a call, in seconds of `clock`."""
    return min(_seconds(call, 1, clock) for _ in range(rounds))


def milliseconds(
    calls: Mapping[str, Callable[[], Any]], device: torch.device, *, rounds: int = 7, block: float = 0.02
) -> dict[str, float]:
    """Return milliseconds a call, of calls taken in turn as by `in_turn`.

    On a GPU by its own clock; on a CPU of the time of this thread, which other programs on the machine do not add to.
    """
    measure = _seconds_on_gpu if device.type == "cuda" else partial(_seconds, clock=thread_time)
    taken = in_turn(calls, rounds=rounds, block=block, measure=measure)
    return {name: 1e3 * seconds for name, (seconds, _) in taken.items()}


def compared(case: str, times: Mapping[str, float], target: float | None = None) -> Found:
    """Return how many times as fast ``sparse`` is as ``dense``, given the milliseconds of both.

    Example:
        >>> compared("a layer", {"dense": 3.0, "sparse": 1.5}, 2.5)
        ('a layer', 2.0, 2.5, '1.500 of 3.000 ms')
    """
    return case, times["dense"] / times["sparse"], target, f"{times['sparse']:.3f} of {times['dense']:.3f} ms"


def broken_even(case: str, ratios: Mapping[float, float]) -> Found:
    """Return the density at which the ratio falls below 1: linear between neighbours, 0 or 1 outside.

    Example:
        >>> broken_even("a layer", {0.1: 2.0, 0.3: 0.0})
        ('a layer, as fast at density', 0.2, None, '0.1: 2.00x, 0.3: 0.00x')
    """
    (before, high), *others = ratios.items()
    crossing = 1.0 if high >= 1 else 0.0
    for density, ratio in others if high >= 1 else []:
        if ratio < 1:
            crossing = before + (density - before) * (high - 1) / (high - ratio)
            break
        before, high = density, ratio
    detail = ", ".join(f"{density:g}: {ratio:.2f}x" for density, ratio in ratios.items())
    return f"{case}, as fast at density", crossing, None, detail


def captured(call: Callable[[], Any]) -> Callable[[], None]:
    """Return a call that replays a CUDA graph of `call`, which has run before."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def _seconds_on_gpu(call: Callable[[], Any], repeats: int) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(repeats):
        call()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) / 1e3 / repeats


def fresh(code: str) -> list[float]:
    """Run Python code in a new process and return the numbers that it printed."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return [float(number) for number in done.stdout.split()]
