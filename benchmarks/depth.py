"""Time per layer of the calls that change a model, at several depths: it should not grow with the depth.

    python benchmarks/depth.py [LAYERS ...]

Prints a row per call: milliseconds per layer at each depth, and the last of them as a multiple of the first. Every call
runs on networks of its own; the fastest of three counts.
"""

import sys
from collections.abc import Callable
from time import perf_counter
from typing import Any

import torch
from torch import nn

import orthosparse

WIDTH, DENSITY = 32, 0.3


def network(layers: int) -> nn.Module:
    """Return a dense network."""
    return nn.Sequential(*[nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(layers)])


def masked(layers: int) -> nn.Module:
    """Return a masked network."""
    model = network(layers)
    orthosparse.sparsify(model, DENSITY, seed=0)
    return model


def compacted(layers: int) -> nn.Module:
    """Return a network of compact layers."""
    model = masked(layers)
    orthosparse.compact(model)
    return model


def saved(layers: int) -> tuple[nn.Module, dict[str, torch.Tensor]]:
    """Return a dense network, and the state of a masked one."""
    return network(layers), masked(layers).state_dict()


# By name: what makes the network, and the call.
CALLS: dict[str, tuple[Callable[[int], Any], Callable[[Any], object]]] = {
    "sparsify": (network, lambda model: orthosparse.sparsify(model, DENSITY, seed=0)),
    "prune, dense": (network, lambda model: orthosparse.prune(model, DENSITY)),
    "prune, masked": (masked, lambda model: orthosparse.prune(model, DENSITY / 2)),
    "replace_masks": (masked, lambda model: orthosparse.replace_masks(model, orthosparse.masks_of(model))),
    "load_sparse": (saved, lambda given: orthosparse.load_sparse(*given)),
    "compact": (masked, orthosparse.compact),
    "expand": (compacted, orthosparse.expand),
    "bake": (masked, orthosparse.bake),
}


def milliseconds(make: Callable[[int], Any], call: Callable[[Any], object], layers: int) -> float:
    """Return the milliseconds per layer of one call."""
    times = []
    for _ in range(3):
        model = make(layers)
        start = perf_counter()
        call(model)
        times.append(perf_counter() - start)
    return 1e3 * min(times) / layers


def main(depths: list[int]) -> None:
    """Measure all calls."""
    print("call", *(f"{layers} layers" for layers in depths), "last / first", sep=" | ")
    for name, (make, call) in CALLS.items():
        milliseconds(make, call, depths[0])  # imports and builds what it needs
        found = [milliseconds(make, call, layers) for layers in depths]
        print(name, *(f"{each:.3f}" for each in found), f"{found[-1] / found[0]:.2f}", sep=" | ", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main([int(layers) for layers in sys.argv[1:]] or [125, 500, 2000])
