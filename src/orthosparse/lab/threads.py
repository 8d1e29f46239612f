"""How many threads torch computes with, for the time of a block."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

# Weights times batch. A 7 x 100 network at batch 128 (1.7e7) takes about a second an epoch of MNIST on one thread; on
# two it gains little on idle cores, and takes seven times as long where others use them too.
_SMALL = 2**25


def threads_for(weights: int, batch: int) -> AbstractContextManager[None]:
    """Compute a step of so many weights on one thread inside the block if it is small, else on as many as before."""
    return one_thread() if weights * batch < _SMALL else nullcontext()


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one thread inside the block: small products lose more by waiting for each other than they gain.

    Example:
        >>> with one_thread():
        ...     torch.get_num_threads()
        1
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
