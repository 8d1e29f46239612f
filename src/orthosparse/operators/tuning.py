"""The fastest of several ways to launch a kernel, measured once for each kind of call."""

from collections.abc import Callable, Hashable, Sequence
from itertools import pairwise
from typing import Any, TypeVar

import torch

Config = TypeVar("Config", bound=Hashable)
_WARMUP, _REPEATS = 2, 7
_DELAY = 1_000_000  # cycles of the GPU, half a millisecond: the launches to be timed queue up meanwhile
# The fastest config, and the milliseconds of each, by kind of call.
chosen: dict[Hashable, Any] = {}
measured: dict[Hashable, dict[Any, float]] = {}


def fastest(key: Hashable, configs: Sequence[Config], launch: Callable[[Config], object]) -> Config:
    """Return the config with which `launch` is fastest; the choice is kept in `chosen` under the key.

    The first config is returned without measuring, and not kept, while a CUDA graph is captured, where nothing can be
    measured, and where kernels are interpreted. Configs that need more than the GPU has are passed over.
    """
    if not torch.cuda.is_available() or torch.cuda.is_current_stream_capturing():
        return configs[0]
    times = {config: _milliseconds(launch, config) for config in configs}
    measured[key] = times
    chosen[key] = best = min(times, key=times.__getitem__)
    return best


def _milliseconds(launch: Callable[[Config], object], config: Config) -> float:
    """Return the shortest time of some launches; infinity where the GPU has not the memory for one."""
    from triton.runtime.errors import OutOfResources

    try:
        for _ in range(_WARMUP):
            launch(config)
    except OutOfResources:
        return float("inf")
    events = [torch.cuda.Event(enable_timing=True) for _ in range(_REPEATS + 1)]
    torch.cuda._sleep(_DELAY)
    events[0].record()
    for event in events[1:]:
        launch(config)
        event.record()
    torch.cuda.synchronize()
    return min(float(before.elapsed_time(after)) for before, after in pairwise(events))
