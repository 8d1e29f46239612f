"""What it costs to lay EOI onto a mask, and how much of the mask it then keeps.

OPENBLAS_NUM_THREADS=1 python benchmarks/aligned.py

Processor seconds on one thread, the fastest of a few (without the variable, the threads of numpy's products count too);
the overlap is the share of a mask's entries that are kept. First ResNet32 at density 0.1, its masks those of magnitude:
the time of `eoi` without and with alignment. Then matrices whose masks have rich and poor rows and columns: sampled,
sorted by degree alone, and assigned.
"""

import time
from collections.abc import Callable
from typing import Any

import torch

from orthosparse import givens
from orthosparse.distributions.magnitude import magnitude
from orthosparse.init import alignment
from orthosparse.lab.models import build
from orthosparse.schemes.eoi import eoi

MATRICES = [(100, 100), (100, 784), (256, 256), (1024, 1024), (2048, 2048), (4096, 4096)]
DENSITIES = (0.02, 0.1)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def timed(work: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    best, made = float("inf"), None
    for _ in range(repeats):
        start = time.process_time()
        made = work()
        best = min(best, time.process_time() - start)
    return best, made


def saliency(n: int, m: int, count: int) -> torch.Tensor:
    """A mask of the largest sums of normal scores of entries, rows and columns."""
    g = seeded(1)
    scores = torch.randn(n, m, generator=g)
    scores += 0.7 * torch.randn(n, 1, generator=g) + 0.7 * torch.randn(1, m, generator=g)
    mask = torch.zeros(n * m, dtype=torch.bool)
    mask[scores.flatten().topk(count).indices] = True
    return mask.view(n, m)


def shared(active: torch.Tensor, mask: torch.Tensor) -> float:
    return float((active & mask).sum() / mask.sum())


def network() -> None:
    model = build("resnet32", classes=10, in_shape=(3, 32, 32), generator=seeded())
    masks = magnitude(model, 0.1)
    plain, _ = timed(lambda: eoi(model, masks, generator=seeded()), 7)
    aligned, _ = timed(lambda: eoi(model, masks, align="mask", generator=seeded()), 7)
    times = f"{1e3 * plain:.1f} ms, aligned {1e3 * aligned:.1f} ms"
    print(f"ResNet32, density 0.1: {times}: adds {aligned / plain - 1:.2f} times the time")


def matrix(n: int, m: int, density: float) -> None:
    count = max(min(n, m), round(density * n * m))
    mask, repeats = saliency(n, m, count), 3
    sampling, (values, active) = timed(
        lambda: givens.sample((n, m), count, dtype=torch.float32, generator=seeded()), repeats
    )
    found = [f"sampled {1e3 * sampling:.1f} ms, overlap {shared(active, mask):.3f}"]
    for name, limit in (("degrees", 0), ("assigned", alignment.ONE_ROUND)):
        rounds = alignment.ALL_ROUNDS, alignment.ONE_ROUND
        alignment.ALL_ROUNDS, alignment.ONE_ROUND = min(rounds[0], limit), limit
        seconds, (_, placed) = timed(lambda: alignment.align(values, active, mask), repeats)
        alignment.ALL_ROUNDS, alignment.ONE_ROUND = rounds
        found.append(f"{name} {1e3 * seconds:.1f} ms, {shared(placed, mask):.3f}")
    print(f"{n} x {m}, density {density}: {'; '.join(found)}", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    network()
    for sides in MATRICES:
        for each in DENSITIES:
            matrix(*sides, each)
