"""Threads for kernels and for layers in parallel; float32 at least; float64, on the CPU where a device has none."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import torch

_LARGE = 2**20  # number of weights from which more than one thread pays off
_COMPLETE = ("cpu", "cuda", "meta")  # Apple's GPUs have no float64, and torch decomposes no matrices on them
_here = threading.local()


def kernel_threads(weights: int) -> int:
    """Return the number of threads for a kernel: torch's number, but 1 for few weights or inside `workers`."""
    return 1 if weights < _LARGE or getattr(_here, "shared", False) else torch.get_num_threads()


@contextmanager
def on_threads(number: int | None) -> Iterator[None]:
    """Set the number of threads that torch uses while the block runs; None keeps it."""
    before = torch.get_num_threads()
    torch.set_num_threads(before if number is None else number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def workers(sizes: Sequence[int]) -> Iterator[Callable[..., Iterator[Any]]]:
    """Yield a ``map`` that uses as many threads as torch, for items with the numbers of weights in `sizes`.

    If there are few weights, or one item has most of them, it is Python's ``map``: one item at a time, with all threads
    in its kernels. If the block raises, items that have not started are cancelled.

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
        torch.set_num_threads(before)  # new threads start with this number, which the work may have changed


def _share() -> None:
    _here.shared = True


def precise(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor in float32, or float64 where it is that: products of half-precision numbers would tie."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def on_float64_device(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor as it is, or on the CPU if its device has no float64."""
    return tensor if tensor.device.type in _COMPLETE else tensor.cpu()


def to_float64(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor in float64, on the CPU if its device has none."""
    return on_float64_device(tensor).double()
