"""Times of calls that can be compared, because they are taken in turn."""

from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter, thread_time
from typing import Any, TypeVar

import torch

_ROUNDS = 7
Key = TypeVar("Key", bound=Hashable)


def seconds(
    calls: Mapping[Key, Callable[[], Any]], device: torch.device, *, block: float, rounds: int = _ROUNDS
) -> dict[Key, float]:
    """Return the seconds that each call takes, without gradients.

    In every round each call is repeated for about `block` seconds, one after the other, so that all of them meet the
    machine in the same state; the shortest round counts, which other programs have disturbed least.
    """
    times = dict.fromkeys(calls, float("inf"))
    with torch.inference_mode():
        for call in calls.values():  # kernels are chosen, caches filled
            call()
        for _ in range(rounds):
            for name, call in calls.items():
                times[name] = min(times[name], _mean(call, device, block))
    return times


@contextmanager
def on_threads(threads: int | None) -> Iterator[None]:
    """Let torch use so many threads while the block runs."""
    before = torch.get_num_threads()
    torch.set_num_threads(before if threads is None else threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


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
