"""Where EOI's rotations begin, at the identity or at a random signed permutation: networks near their floors, trained.

python benchmarks/rotations.py [starts] [start_causes] --data FOLDER

Writes one Markdown table a topic, which docs/howto/floors.md includes. CIFAR-10 and MNIST lie below --data. On one
thread, `starts` takes an hour and `start_causes` some minutes.
Options: --seeds N, --out FOLDER (docs/evidence).
"""

import argparse
import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import avg_pool2d

import orthosparse
from chains import unmixed
from choices import ROOT, Table, accuracy, perceptron, plain, residual, trained, write
from orthosparse.lab.data import Dataset, Loader, Split, load
from orthosparse.lab.models import build, dense_init
from orthosparse.lab.models.resnet import resnet
from orthosparse.lab.seeds import fenced


def starts(seeds: range, root: Path | None = None) -> Table:
    """Rotations that begin at the identity and at a random signed permutation, trained."""
    rows = [compared(*cell, seeds, root) for cell in STARTED]
    heads = ["identities", "chain", "gradient", "lost", "base", "identity", "permuted"]
    return [["network", "distribution", "density", *heads], *rows]


# Networks of `starts`: how each is made, its data, learning rate and epochs.
NETWORKS: dict[str, tuple[Callable[[], nn.Module], str, float, int]] = {
    "ResNet20, CIFAR-10": (partial(resnet, classes=10, in_shape=(3, 16, 16), depth=20), "cifar10", 0.1, 8),
    "ResNet20, digits": (partial(resnet, classes=10, in_shape=(1, 8, 8), depth=20), "digits", 0.1, 15),
    "ResNet56, digits": (partial(resnet, classes=10, in_shape=(1, 8, 8), depth=56), "digits", 0.1, 10),
    "8 residual blocks, layer norm, digits": (partial(residual, 128), "digits", 0.05, 20),
    "8 residual blocks of 64, 256 inside, digits": (partial(residual, 64, 256), "digits", 0.05, 20),
    "8 residual blocks of 256, 64 inside, digits": (partial(residual, 256, 64), "digits", 0.05, 20),
    "10 convolutions, tanh, digits": (partial(plain, 10), "digits", 0.05, 20),
    "30 layers, tanh, digits": (partial(perceptron, 30, nn.Tanh, 100), "digits", 0.05, 20),
    "8 layers of 256 and 64, tanh, digits": (partial(perceptron, 8, nn.Tanh, 256, 64), "digits", 0.05, 20),
    **{
        f"7 layers, {activation}, MNIST": (
            partial(build, "mlp", classes=10, in_shape=(1, 28, 28), activation=activation), "mnist", 0.05, 10,
        )
        for activation in ("tanh", "hardtanh")
    },
}  # fmt: skip
# Lines of `starts`: a network, a distribution and a density.
STARTED = [
    ("ResNet20, CIFAR-10", "dense_ends", 0.01),
    ("ResNet20, CIFAR-10", "erk", 0.005),
    ("ResNet20, digits", "uniform", 0.01),
    ("ResNet20, digits", "dense_ends", 0.01),
    ("ResNet20, digits", "erk", 0.01),
    ("ResNet56, digits", "dense_ends", 0.01),
    ("8 residual blocks, layer norm, digits", "uniform", 0.01),
    *[("8 residual blocks, layer norm, digits", "erk", density) for density in (0.01, 0.02, 0.05)],
    *[("8 residual blocks of 64, 256 inside, digits", "erk", density) for density in (0.01, 0.02)],
    *[("8 residual blocks of 256, 64 inside, digits", "erk", density) for density in (0.01, 0.02)],
    *[("8 layers of 256 and 64, tanh, digits", "erk", density) for density in (0.01, 0.02, 0.05)],
    ("30 layers, tanh, digits", "erk", 0.02),
    *[("10 convolutions, tanh, digits", "erk", density) for density in (0.02, 0.1)],
    *[("7 layers, tanh, MNIST", "erk", density) for density in (0.005, 0.01)],
    ("7 layers, tanh, MNIST", "uniform", 0.01),
    ("7 layers, hardtanh, MNIST", "grasp", 0.05),
]


def compared(name: str, distribution: str, density: float, seeds: range, root: Path | None) -> list[str]:
    """One line of `starts`; of identities, chains and gradients, the largest of the seeds."""
    data, found = reduced(NETWORKS[name][1], root), {}
    for start, seed in product(("base", "identity", "permuted"), seeds):
        model = begun(name, distribution, density, start, seed, data)
        shape, gradients = chained(model), watch(model)
        reached = trained(model, seed, *NETWORKS[name][2:], data)
        found.setdefault(start, []).append((*shape, max(gradients), math.isnan(reached), reached))
    line = [name, distribution, str(density)]
    runs = {start: list(zip(*each, strict=True)) for start, each in found.items()}
    for item, combine, form in ((0, max, "d"), (1, max, "d"), (2, max, ".2g"), (3, sum, "d")):
        line.append(" / ".join(format(combine(runs[start][item]), form) for start in ("identity", "permuted")))
    line += [of_finite(columns[4]) for columns in runs.values()]
    print(line, flush=True)
    return line


def of_finite(values: Iterable[float]) -> str:
    left = [each for each in values if not math.isnan(each)]
    return accuracy(left) if left else "lost"


def begun(name: str, distribution: str, density: float, start: str, seed: int, data: Dataset) -> nn.Module:
    """A network of `starts` before it is trained."""
    generator = torch.Generator().manual_seed(seed)
    with fenced(seed):
        model = NETWORKS[name][0]()
    dense_init(model, generator=generator)
    how = {"scheme": "base"} if start == "base" else {"start": start, "align": "none"}
    batch = next(iter(Loader(data.train, batch=256, seed=seed).epoch(0)))
    orthosparse.sparsify(model, density, distribution=distribution, batch=batch, generator=generator, **how)
    return model


def start_causes(seeds: range, root: Path | None = None) -> Table:
    """Networks from the identity with one thing changed: the signs of rows, or the order of the pixels."""
    table = [["network", "distribution", "density", "changed", "lost", "identity, changed"]]
    for name, distribution, density, changed in CHANGED:
        data, reached = reduced(NETWORKS[name][1], root), []
        data = shuffled(data) if changed == "order of the pixels" else data
        for seed in seeds:
            model = begun(name, distribution, density, "identity", seed, data)
            if changed == "signs of the rows":
                flip_rows(model, torch.Generator().manual_seed(seed))
            reached.append(trained(model, seed, *NETWORKS[name][2:], data))
        lost = sum(map(math.isnan, reached))
        table.append([name, distribution, str(density), changed, str(lost), of_finite(reached)])
        print(table[-1], flush=True)
    return table


CHANGED = [
    ("8 residual blocks, layer norm, digits", "uniform", 0.01, "signs of the rows"),
    ("8 residual blocks, layer norm, digits", "erk", 0.01, "signs of the rows"),
    ("7 layers, hardtanh, MNIST", "grasp", 0.05, "order of the pixels"),
    ("ResNet56, digits", "dense_ends", 0.01, "signs of the rows"),
]


def shuffled(data: Dataset) -> Dataset:
    order = torch.randperm(data.train.images[0].numel(), generator=torch.Generator().manual_seed(0))
    train, test = (
        replace(split, images=split.images.flatten(1)[:, order].view_as(split.images))
        for split in (data.train, data.test)
    )
    return replace(data, train=train, test=test)


@torch.no_grad()
def flip_rows(model: nn.Module, generator: torch.Generator) -> None:
    """Negate each output of each layer, or not, at random; masks and orthogonality stay."""
    for layer in orthosparse.find_layers(model).values():
        weight = layer.parameter()
        signs = 2.0 * torch.randint(2, weight.shape[:1], generator=generator) - 1
        weight.mul_(signs.view(-1, *[1] * (weight.dim() - 1)))


def reduced(name: str, root: Path | None) -> Dataset:
    """Digits whole; of the others, the first 5,000 images for training and for the test, CIFAR-10 in 16 x 16 pixels."""
    data = load(name, root, validation=False)
    if name == "digits":
        return data
    data = replace(data, train=data.train.part(0, 5_000), test=data.test.part(0, 5_000))
    return replace(data, train=halved(data.train), test=halved(data.test)) if name == "cifar10" else data


def halved(split: Split) -> Split:
    return replace(split, images=avg_pool2d(split.images.float(), 2).round().to(torch.uint8))


def chained(model: nn.Module) -> tuple[int, int]:
    """How many square layers are the identity, and the longest chain of them through which a channel passes alone."""
    identities, longest, chain = 0, 0, torch.zeros(0, dtype=torch.int64)
    for mask in orthosparse.masks_of(model).values():
        if mask.shape[0] != mask.shape[1]:
            continue
        alone = unmixed(mask.flatten(2) if mask.dim() > 2 else mask[..., None])
        chain = (chain + 1 if len(chain) == len(alone) else torch.ones_like(alone, dtype=torch.int64)) * alone
        identities, longest = identities + bool(alone.all()), max(longest, int(chain.max()))
    return identities, longest


def watch(model: nn.Module) -> list[float]:
    """A list that gets, in every step of a training, the norm of the gradient of each layer's largest channel."""
    found: list[float] = []

    def note(gradient: torch.Tensor) -> None:
        norms = torch.linalg.vector_norm(gradient, dim=[0, *range(2, gradient.dim())])
        found.append(float(norms.max().nan_to_num(math.inf, posinf=math.inf)))

    def follow(module: nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        del module, inputs
        if output.requires_grad:
            output.register_hook(note)

    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            module.register_forward_hook(follow)
    return found


def main() -> None:
    topics = {"starts": starts, "start_causes": start_causes}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("topics", nargs="*", choices=[*topics, []], default=[])
    parser.add_argument("--data", type=Path, required=True, help="the folder of CIFAR-10 and MNIST")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "evidence")
    given = parser.parse_args()
    chosen = {topic: partial(topics[topic], root=given.data) for topic in given.topics or topics}
    write(chosen, range(given.seeds), given.out)


if __name__ == "__main__":
    main()
