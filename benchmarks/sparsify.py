"""Time of the distributions that look at data, against one forward and backward pass over the same batch.

    python benchmarks/sparsify.py [cpu | cuda]

Prints one line a measurement; ratios are taken inside one run, the fastest of several calls each.
"""

import sys
from collections.abc import Callable
from functools import partial

import torch
from torch import nn
from torch.nn import functional as F

from orthosparse import sparsify
from orthosparse.distributions import DISTRIBUTIONS
from orthosparse.lab.bench.timing import shortest
from orthosparse.lab.models import build
from orthosparse.lab.training.devices import now


def timed(work: Callable[[], object], device: str) -> float:
    """Seconds of the fastest of three calls, after one to warm up."""
    work()
    return shortest(work, 3, clock=partial(now, torch.device(device)))


def main(device: str) -> None:
    generator = torch.Generator().manual_seed(0)
    for name, size in (("resnet32", 32), ("resnet110", 8), ("vgg16c", 8)):
        made = partial(build, name, classes=10, in_shape=(3, 32, 32), generator=generator)
        model, x = made().to(device), torch.randn(size, 3, 32, 32, generator=generator).to(device)
        y = torch.randint(10, (size,), generator=generator).to(device)

        def step(model: nn.Module = model, x: torch.Tensor = x, y: torch.Tensor = y) -> None:
            model.zero_grad()
            F.cross_entropy(model(x), y).backward()

        base = timed(step, device)
        print(f"{name}, batch {size}: forward-backward {base:.3f} s")
        for distribution in ("snip", "grasp"):
            function = DISTRIBUTIONS[distribution]
            seconds = timed(partial(function, model, 0.1, batch=(x, y)), device)
            print(f"  {distribution}: {seconds:.3f} s, {seconds / base:.2f} x")
        for scheme in ("base", "eoi"):
            fresh = [made().to(device) for _ in range(4)]
            whole = partial(sparsify, density=0.1, distribution="snip", scheme=scheme, batch=(x, y))
            seconds = timed(lambda whole=whole, fresh=fresh: whole(fresh.pop()), device)
            print(f"  sparsify(..., 'snip', '{scheme}'): {seconds:.3f} s, {seconds / base:.2f} x")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(sys.argv[1] if len(sys.argv) > 1 else "cpu")
