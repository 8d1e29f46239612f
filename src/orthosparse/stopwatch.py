"""Times of calls that can be compared, because they are taken in turn."""

from collections.abc import Callable, Mapping
from time import perf_counter, thread_time
from typing import Any, TypeVar

import torch

Key = TypeVar("Key")


def seconds_in_turn(
    calls: Mapping[Key, Callable[[], Any]], device: torch.device, *, block: float, rounds: int
) -> dict[Key, float]:
    """Return the seconds that each call takes.

    In every round each call is repeated for about `block` seconds, one after the other, so that all of them meet the
    machine in the same state; the shortest round counts, which other programs have disturbed least.
    """
    for call in calls.values():  # kernels are chosen, caches filled
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
    # The time of this thread, where it does all the work: other programs on the machine do not add to it.
    alone = device.type == "cpu" and torch.get_num_threads() == 1
    return thread_time() if alone else perf_counter()
