"""Layers shared among threads: each takes the next that is left, so that a thread on a busy core holds nobody up."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")

_LARGE = 2**20  # weights from which more than one thread pays
_here = threading.local()


def kernel_threads(weights: int) -> int:
    """Return how many threads a kernel may take: torch's number, but one for few weights, or inside of `shared`."""
    return 1 if weights < _LARGE or getattr(_here, "shared", False) else torch.get_num_threads()


def shared(work: Callable[[Item], Result], items: Sequence[Item], sizes: Sequence[int]) -> list[Result]:
    """Return ``work(item)`` for every item, computed by as many threads as torch has.

    One after the other, with all threads in their kernels, where there are few weights or one item has most of them.

    Args:
        sizes: the weights of each item.

    Example:
        >>> shared(lambda name: name.upper(), ["a", "b"], [100, 100])
        ['A', 'B']
    """
    before = torch.get_num_threads()
    threads = min(before, len(items))
    if threads < 2 or sum(sizes) < _LARGE or max(sizes) * threads > sum(sizes):
        return [work(item) for item in items]

    def work_alone(item: Item) -> Result:
        _here.shared = True
        return work(item)

    try:
        with ThreadPoolExecutor(threads) as pool:
            futures = [pool.submit(work_alone, item) for item in items]
            try:
                return [future.result() for future in futures]
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)  # the pool's own end waits for those that run
                raise
    finally:
        torch.set_num_threads(before)  # what new threads start with, which work that sets it for itself may have left
