"""Times of calls without gradients, on a number of threads."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import torch

from orthosparse.stopwatch import seconds_in_turn

_ROUNDS = 7
Key = TypeVar("Key")


def seconds(
    calls: Mapping[Key, Callable[[], Any]], device: torch.device, *, block: float, rounds: int = _ROUNDS
) -> dict[Key, float]:
    """Return the seconds that each call takes, without gradients (see `seconds_in_turn`)."""
    with torch.inference_mode():
        return seconds_in_turn(calls, device, block=block, rounds=rounds)


@contextmanager
def on_threads(threads: int | None) -> Iterator[None]:
    """Let torch use so many threads while the block runs."""
    before = torch.get_num_threads()
    torch.set_num_threads(before if threads is None else threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
