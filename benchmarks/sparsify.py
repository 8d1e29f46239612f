"""Time of the distributions that look at data, against one forward and backward pass over the same batch.

    python benchmarks/sparsify.py [cpu | cuda]

Prints one line a measurement; ratios are taken inside one run, the fastest of several calls each.
"""

import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional as F

from orthosparse import sparsify
from orthosparse.distributions import DISTRIBUTIONS


class Block(nn.Module):
    """Two 3 x 3 convolutions with batch norm, and a 1 x 1 shortcut where the shape changes."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        stride = 1 if inputs == outputs else 2
        self.conv1, self.bn1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs)
        self.conv2, self.bn2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs)
        self.shortcut = nn.Identity() if stride == 1 else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + self.shortcut(x))


def resnet(blocks: int, width: int = 16) -> nn.Module:
    """A CIFAR ResNet of 6 * blocks + 2 layers."""
    widths = [width, *[width] * blocks, *[2 * width] * blocks, *[4 * width] * blocks]
    body = [Block(a, b) for a, b in pairwise(widths)]
    stem = [nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    return nn.Sequential(*stem, *body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * width, 10))


def timed(work: Callable[[], object], device: str, repeats: int = 3) -> float:
    """Seconds of the fastest of `repeats` calls, after one to warm up."""
    times = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        work()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return min(times[1:])


def main(device: str) -> None:
    generator = torch.Generator().manual_seed(0)
    cases = {
        "ResNet-32, batch 32": (lambda: resnet(5), torch.randn(32, 3, 32, 32, generator=generator)),
        "ResNet-110, batch 8": (lambda: resnet(18), torch.randn(8, 3, 32, 32, generator=generator)),
        "ResNet-20 x 4, batch 8": (lambda: resnet(3, 64), torch.randn(8, 3, 32, 32, generator=generator)),
    }
    for name, (build, x) in cases.items():
        model, x = build().to(device), x.to(device)
        y = torch.randint(10, (len(x),), generator=generator).to(device)

        def step(model: nn.Module = model, x: torch.Tensor = x, y: torch.Tensor = y) -> None:
            model.zero_grad()
            F.cross_entropy(model(x), y).backward()

        base = timed(step, device)
        print(f"{name}: forward-backward {base:.3f} s")
        for distribution in ("snip", "grasp"):
            function = DISTRIBUTIONS[distribution]
            seconds = timed(partial(function, model, 0.1, batch=(x, y)), device)
            print(f"  {distribution}: {seconds:.3f} s, {seconds / base:.2f} x")
        for scheme in ("base", "eoi"):
            fresh = [build().to(device) for _ in range(4)]
            whole = partial(sparsify, density=0.1, distribution="snip", scheme=scheme, batch=(x, y))
            seconds = timed(lambda whole=whole, fresh=fresh: whole(fresh.pop()), device)
            print(f"  sparsify(..., 'snip', '{scheme}'): {seconds:.3f} s, {seconds / base:.2f} x")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(sys.argv[1] if len(sys.argv) > 1 else "cpu")
