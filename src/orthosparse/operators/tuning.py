"""Choose the fastest of several launch configs of a kernel, measured once for each kind of call."""

from collections.abc import Callable, Hashable, Sequence
from itertools import pairwise
from typing import Any, TypeVar

import torch

Config = TypeVar("Config", bound=Hashable)
_WARMUP, _REPEATS = 2, 7
_DELAY = 1_000_000  # GPU cycles, half a millisecond: meanwhile the timed launches queue up
# The fastest config, and the milliseconds of each, by kind of call.
chosen: dict[Hashable, Any] = {}
measured: dict[Hashable, dict[Any, float]] = {}


def fastest(key: Hashable, configs: Sequence[Config], launch: Callable[[Config], object]) -> Config:
    """Return the config with which `launch` is fastest; the choice is kept in `chosen` under the key.

    While a CUDA graph is captured, or if kernels are interpreted, the first config is returned without measuring, and
    the choice is not kept. Configs that need more resources than the GPU has are skipped.
    """
    if not torch.cuda.is_available() or torch.cuda.is_current_stream_capturing():
        return configs[0]
    times = {config: _milliseconds(launch, config) for config in configs}
    measured[key] = times
    chosen[key] = best = min(times, key=times.__getitem__)
    return best


def _milliseconds(launch: Callable[[Config], object], config: Config) -> float:
    """Return the shortest time of some launches; infinity if the GPU lacks the resources for one."""
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
