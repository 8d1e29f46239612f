"""How many threads torch computes on, and layers shared among threads: each takes the next that is left."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import torch

_LARGE = 2**20  # weights from which more than one thread pays
_here = threading.local()


def kernel_threads(weights: int) -> int:
    """Return how many threads a kernel may take: torch's number, but one for few weights, or inside of `workers`."""
    return 1 if weights < _LARGE or getattr(_here, "shared", False) else torch.get_num_threads()


@contextmanager
def on_threads(number: int | None) -> Iterator[None]:
    """Let torch compute on so many threads while the block runs; None: on as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(before if number is None else number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def workers(sizes: Sequence[int]) -> Iterator[Callable[..., Iterator[Any]]]:
    """Yield a ``map`` that works with as many threads as torch has, for items of so many weights each.

    It is Python's own, one item after the other with all threads in their kernels, where there are few weights or one
    item has most of them. What has not begun when the block raises does not begin.

    Example:
        >>> with workers([100, 100]) as parallel_map:
        ...     list(parallel_map(str.upper, ["a", "b"]))
        ['A', 'B']
    """
    before = torch.get_num_threads()
    threads = min(before, len(sizes))
    if threads < 2 or sum(sizes) < _LARGE or max(sizes) * threads > sum(sizes):
        yield map
        return
    pool = ThreadPoolExecutor(threads, initializer=_share)
    try:
        yield pool.map
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(before)  # what new threads start with, which work that sets it for itself may have left


def _share() -> None:
    _here.shared = True
