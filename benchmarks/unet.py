"""Train a small U-Net at density 0.1 from several starts: with and without batch norm, at several learning rates.

python benchmarks/unet.py [--norm] [--optimizer sgd] [--rates 0.3,0.1,0.03] [--seeds 1,2,3] [--out rows.jsonl]

Encoder and decoder have three levels, skip connections by concatenation, pooling on the way down and transposed
convolutions of stride 2 on the way up. It finds discs and squares in noisy pictures of 32 x 32 pixels that a generator
draws. Each line has the mean intersection over union of the three classes on 128 other pictures after 60 steps, the
norm of all gradients at the first step and the largest one, and how many output channels compute nothing but zeros
before the first step and after the last. One core takes about ten seconds for each network.
"""

import argparse
import json
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import orthosparse
from orthosparse.hardware import on_threads
from orthosparse.lab.provenance import provenance

WIDTHS = (16, 32, 64, 128)
STARTS: dict[str, dict[str, Any]] = {
    "dense": {},
    "base": {"scheme": "base"},
    "eoi": {},
    "eoi, gain 2**0.5": {"gain": 2**0.5},
    "eoi, random taps": {"tap": "random"},
    "eoi, bias_std 0.05": {"bias_std": 0.05},
}


def convolutions(inputs: int, outputs: int, norm: bool) -> nn.Sequential:
    """Return two convolutions, each with a ReLU behind it and, with `norm`, a batch norm before that."""
    parts: list[nn.Module] = []
    for width in (inputs, outputs):
        parts += [nn.Conv2d(width, outputs, 3, padding=1), *[nn.BatchNorm2d(outputs)] * norm, nn.ReLU()]
    return nn.Sequential(*parts)


class UNet(nn.Module):
    """An encoder, a decoder, and connections between their levels by concatenation."""

    def __init__(self, norm: bool) -> None:
        super().__init__()
        *levels, bottom = WIDTHS
        self.down = nn.ModuleList(convolutions(i, o, norm) for i, o in zip((3, *levels), levels, strict=False))
        self.bottom = convolutions(levels[-1], bottom, norm)
        pairs = [*zip(levels, WIDTHS[1:], strict=True)][::-1]
        self.up = nn.ModuleList(nn.ConvTranspose2d(below, own, 2, stride=2) for own, below in pairs)
        self.merge = nn.ModuleList(convolutions(2 * own, own, norm) for own, _ in pairs)
        self.head = nn.Conv2d(levels[0], 3, 1)
        self.pool = nn.MaxPool2d(2)

    def forward(self, x: Tensor) -> Tensor:
        kept = []
        for level in self.down:
            kept.append(level(x))
            x = self.pool(kept[-1])
        x = self.bottom(x)
        for up, merge in zip(self.up, self.merge, strict=True):
            x = merge(torch.cat([up(x), kept.pop()], 1))
        return self.head(x)  # type: ignore[no-any-return]


def pictures(count: int, generator: torch.Generator, side: int = 32) -> tuple[Tensor, Tensor]:
    """Draw a disc (class 1) and a square (class 2), of random sizes, places and colours, on noise (class 0)."""
    x = 0.5 * torch.randn(count, 3, side, side, generator=generator)
    y = torch.zeros(count, side, side, dtype=torch.long)
    rows, columns = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
    for image, labels in zip(x, y, strict=True):
        for shape in (1, 2):
            middle, radius = side * torch.rand(2, generator=generator), 4 + 6 * torch.rand(1, generator=generator)
            away = torch.stack([rows - middle[0], columns - middle[1]]).abs()
            inside = (away.square().sum(0).sqrt() if shape == 1 else away.amax(0)) < radius
            image[:, inside] += torch.randn(3, 1, generator=generator)
            labels[inside] = shape
    return x, y


def started(start: str, seed: int, norm: bool, density: float) -> nn.Module:
    """Return the network with its start; its dense weights are the same for all starts of a seed."""
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        network = UNet(norm)
    if start != "dense":
        orthosparse.sparsify(network, density, seed=seed, **STARTS[start])
    return network


def zeros_in(network: nn.Module) -> int:
    """Return how many output channels of 3 x 3 convolutions have nothing but zeros."""
    found = [module for module in network.modules() if isinstance(module, nn.Conv2d) and module.kernel_size == (3, 3)]
    return sum(int(module.weight.detach().flatten(1).eq(0).all(1).sum()) for module in found)


def trained(network: nn.Module, seed: int, optimizer: str, rate: float, steps: int) -> dict[str, Any]:
    """Train on fresh pictures at every step, and return the figures."""
    generator = torch.Generator().manual_seed(1000 + seed)
    kinds: dict[str, Any] = {"sgd": lambda p: torch.optim.SGD(p, rate, momentum=0.9), "adam": torch.optim.Adam}
    stepper = kinds[optimizer](network.parameters())
    stepper.param_groups[0]["lr"] = rate
    zeros, norms = zeros_in(network), []
    for _ in range(steps):
        x, y = pictures(16, generator)
        loss = cross_entropy(network(x), y)
        stepper.zero_grad()
        loss.backward()
        norms.append(float(torch.nn.utils.get_total_norm(p.grad for p in network.parameters() if p.grad is not None)))
        stepper.step()
    test = pictures(128, torch.Generator().manual_seed(77))
    overlap, after = mean_overlap(network.eval(), *test), zeros_in(network)
    figures = {"first_gradient": norms[0], "largest_gradient": max(norms), "mean_iou": overlap}
    return {**figures, "zero_outputs": zeros, "zero_outputs_after": after}


@torch.no_grad()
def mean_overlap(network: nn.Module, x: Tensor, y: Tensor) -> float:
    """Return the mean over the classes of intersection over union."""
    found = network(x).argmax(1)
    hits = [(found == k, y == k) for k in range(3)]
    return fmean(float((one & other).sum() / (one | other).sum().clamp_min(1)) for one, other in hits)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--norm", action="store_true", help="with batch norms")
    parser.add_argument("--optimizer", choices=["sgd", "adam"], default="sgd")
    parser.add_argument("--rates", default="0.3,0.1,0.03")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--density", type=float, default=0.1)
    parser.add_argument("--starts", default=";".join(STARTS), help="some of the starts, with semicolons between them")
    parser.add_argument("--out", type=Path, help="a file to which rows are added")
    given = parser.parse_args()
    shared = {name: getattr(given, name) for name in ("norm", "optimizer", "steps", "density")}
    for start in given.starts.split(";"):
        for rate in map(float, given.rates.split(",")):
            rows = []
            for seed in map(int, given.seeds.split(",")):
                network = started(start, seed, given.norm, given.density)
                row = trained(network, seed, given.optimizer, rate, given.steps)
                rows.append({"start": start, "rate": rate, "seed": seed, **shared, **row})
            line = " ".join(f"{row['mean_iou']:.3f}" for row in rows)
            zeros = sum(row["zero_outputs"] for row in rows), sum(row["zero_outputs_after"] for row in rows)
            print(
                f"{start:20} rate {rate:<5g} mean IoU {fmean(row['mean_iou'] for row in rows):.3f} ({line})  gradient "
                f"{max(row['first_gradient'] for row in rows):.2f} then at most "
                f"{max(row['largest_gradient'] for row in rows):.3g}  zero outputs {zeros[0]}, {zeros[1]}",
                flush=True,
            )
            if given.out is not None:
                with given.out.open("a") as file:
                    file.writelines(json.dumps({**row, **provenance(torch.device("cpu"))}) + "\n" for row in rows)


if __name__ == "__main__":
    with on_threads(1):
        main()
