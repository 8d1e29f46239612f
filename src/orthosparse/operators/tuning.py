"""The fastest of several ways to launch a kernel, measured once for each kind of call."""

from collections.abc import Callable, Hashable, Sequence
from itertools import pairwise
from typing import Any, TypeVar

import torch

Config = TypeVar("Config", bound=Hashable)
_WARMUP, _REPEATS = 2, 5
# Milliseconds by config, by kind of call.
measured: dict[Hashable, dict[Any, float]] = {}


def fastest(key: Hashable, configs: Sequence[Config], launch: Callable[[Config], object]) -> Config:
    """Return the config with which `launch` is fastest; the choice is kept for calls with the same key.

    The first config is returned without measuring, and not kept, while a CUDA graph is captured, where nothing can be
    measured, and under ``torch.use_deterministic_algorithms``: a choice by time may differ from run to run, and sums in
    another order differ in the last bit. Configs that need more than the GPU has are passed over.
    """
    if not torch.cuda.is_available() or torch.are_deterministic_algorithms_enabled():
        return configs[0]  # without a GPU kernels are interpreted
    if key not in measured:
        if torch.cuda.is_current_stream_capturing():
            return configs[0]
        measured[key] = {config: _milliseconds(launch, config) for config in configs}
    times = measured[key]
    chosen: Config = min(times, key=times.__getitem__)
    return chosen


def _milliseconds(launch: Callable[[Config], object], config: Config) -> float:
    """Return the shortest time of some launches; infinity where the GPU has not the memory for one."""
    from triton.runtime.errors import OutOfResources

    try:
        for _ in range(_WARMUP):
            launch(config)
    except OutOfResources:
        return float("inf")
    events = [torch.cuda.Event(enable_timing=True) for _ in range(_REPEATS + 1)]
    events[0].record()
    for event in events[1:]:
        launch(config)
        event.record()
    torch.cuda.synchronize()
    return min(float(before.elapsed_time(after)) for before, after in pairwise(events))
