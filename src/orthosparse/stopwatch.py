"""Time several calls in turn, so that their times can be compared."""

from collections.abc import Callable, Mapping
from time import perf_counter, thread_time
from typing import Any, TypeVar

import torch

Key = TypeVar("Key")


def seconds_in_turn(
    calls: Mapping[Key, Callable[[], Any]], device: torch.device, *, block: float, rounds: int
) -> dict[Key, float]:
    """Return the seconds per call of each function in `calls`.

    In every round, each call in turn is repeated for about `block` seconds, so that all run under the same conditions.
    The result is the mean of the fastest round, which other programs have disturbed least.
    """
    for call in calls.values():  # warm up: choose kernels, fill caches
        call()
    times = dict.fromkeys(calls, float("inf"))
    for _ in range(rounds):
        for name, call in calls.items():
            times[name] = min(times[name], _mean(call, device, block))
    return times


def _mean(call: Callable[[], Any], device: torch.device, block: float) -> float:
    start, end, calls = _now(device), perf_counter() + block, 0
    while calls == 0 or perf_counter() < end:
        call()
        calls += 1
    return (_now(device) - start) / calls


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    # The CPU time of this thread, if it does all the work: other programs do not add to it.
    alone = device.type == "cpu" and torch.get_num_threads() == 1
    return thread_time() if alone else perf_counter()
