"""Time of load_sparse over the number of layers: five times the layers should take about five times as long.

python benchmarks/loading.py
"""

from time import perf_counter

import torch
from torch import nn

import orthosparse


def seconds(number: int, repeats: int = 3) -> float:
    """Return the least time of loading a sparse state dict into a dense model of `number` layers."""
    generator = torch.Generator().manual_seed(0)
    source = nn.Sequential(*(nn.Linear(8, 8) for _ in range(number)))
    orthosparse.sparsify(source, 0.5, generator=generator)
    state, times = source.state_dict(), []
    for _ in range(repeats):
        model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(number)))
        start = perf_counter()
        orthosparse.load_sparse(model, state)
        times.append(perf_counter() - start)
    return min(times)


if __name__ == "__main__":
    few, many = seconds(1000), seconds(5000)
    print(f"1000 layers {few:.2f} s, 5000 layers {many:.2f} s: {many / few:.1f} times as long")
