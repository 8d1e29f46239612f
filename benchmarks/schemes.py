"""Time of the schemes: AI against a plain loop, EOI against torch's own initialization, and nets of 1000 layers.

python benchmarks/schemes.py [ai] [resnet50] [mlp1000] [cnn1000] [sao]

One line a measurement, on one thread, in processor time; ratios are taken inside one run.
"""

import sys
from collections.abc import Callable
from functools import partial
from time import process_time

import torch
from torch import nn

from orthosparse.distributions import DISTRIBUTIONS
from orthosparse.lab.bench.timing import shortest
from orthosparse.lab.models import build
from orthosparse.layers import find_layers
from orthosparse.schemes import SCHEMES

Masks = dict[str, torch.Tensor]
timed = partial(shortest, clock=process_time)


def model_of(name: str) -> nn.Module:
    in_shape = (1, 28, 28) if name == "mlp1000" else (3, 32, 32)
    return build(name, classes=10, in_shape=in_shape, generator=torch.Generator().manual_seed(0))


def resnet50() -> nn.Module:
    """The layers of the ImageNet network without its wiring: schemes look at weights alone, and timm is not needed."""
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 7, bias=False)]
    before = 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        layers.append(nn.Conv2d(before, 4 * width, 1, bias=False))
        for _ in range(blocks):
            layers += [
                nn.Conv2d(before, width, 1, bias=False),
                nn.Conv2d(width, width, 3, bias=False),
                nn.Conv2d(width, 4 * width, 1, bias=False),
            ]
            before = 4 * width
    return nn.ModuleList([*layers, nn.Linear(2048, 1000)])


def masks_at(model: nn.Module, distribution: str, density: float) -> Masks:
    return DISTRIBUTIONS[distribution](model, density, generator=torch.Generator().manual_seed(0))


def loss_of(weight: torch.Tensor) -> torch.Tensor:
    matrix = weight.flatten(1)
    gram = matrix @ matrix.T if matrix.shape[0] <= matrix.shape[1] else matrix.T @ matrix
    return torch.linalg.norm(gram - torch.eye(len(gram)))


def total_loss(model: nn.Module) -> float:
    with torch.no_grad():
        return sum(float(loss_of(layer.parameter())) for layer in find_layers(model).values())


def plain_ai(model: nn.Module, masks: Masks, iterations: int) -> None:
    """One layer after the other, by autograd."""
    for name, layer in find_layers(model).items():
        weight, mask = layer.parameter(), masks[name].float()
        optimizer = torch.optim.SGD([weight], lr=0.1)
        for _ in range(iterations):
            optimizer.zero_grad()
            loss_of(weight * mask).backward()
            optimizer.step()
        with torch.no_grad():
            weight.mul_(mask)


def bench_ai(iterations: int = 1000) -> None:
    model, copy = model_of("resnet32"), model_of("resnet32")
    for layer in find_layers(model).values():
        nn.init.orthogonal_(layer.parameter(), generator=torch.Generator().manual_seed(0))
    copy.load_state_dict(model.state_dict())
    masks = masks_at(model, "erk", 0.1)
    ours = timed(lambda: SCHEMES["ai"](model, masks, iterations=iterations), 1)
    plain = timed(lambda: plain_ai(copy, masks, iterations), 1)
    print(f"ai, resnet32 at 0.1, {iterations} iterations: {ours:.2f} s, loss {total_loss(model):.3f}", end="; ")
    print(f"plain loop {plain:.2f} s, loss {total_loss(copy):.3f}; ratio {ours / plain:.3f}")


def bench_resnet50() -> None:
    model = resnet50()
    masks = masks_at(model, "erk", 0.1)
    default = timed(lambda: [module.reset_parameters() for module in model], 5)
    layers = find_layers(model)  # sparsify finds them once, before the distribution
    seeded = torch.Generator().manual_seed(0)
    ours = timed(lambda: SCHEMES["eoi"](model, masks, layers=layers, generator=seeded), 5)
    print(f"eoi, resnet50 at 0.1: {ours:.3f} s; torch's default {default:.3f} s, ratio {ours / default:.2f}")


def bench_deep(name: str, scheme: str, distribution: str) -> None:
    model = model_of(name)
    masks = masks_at(model, distribution, 0.125)
    seconds = timed(lambda: SCHEMES[scheme](model, masks, generator=torch.Generator().manual_seed(0)), 3)
    print(f"{scheme}, {name} at 0.125: {seconds:.3f} s")


BENCHES: dict[str, Callable[[], None]] = {
    "ai": bench_ai,
    "resnet50": bench_resnet50,
    "mlp1000": lambda: bench_deep("mlp1000", "eoi", "uniform"),
    "cnn1000": lambda: bench_deep("cnn1000", "eoi", "uniform"),
    "sao": lambda: bench_deep("mlp1000", "sao", "dense_ends"),
}

if __name__ == "__main__":
    torch.set_num_threads(1)
    for chosen in sys.argv[1:] or BENCHES:
        BENCHES[chosen]()
