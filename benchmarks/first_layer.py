"""What the density of the first layer does to a deep perceptron from an EOI start, and what draws of its pixels add.

python benchmarks/first_layer.py DATA [--depth 100] [--epochs 20] [--lr 0.001] [--seeds 1,2,3,4,5]

The paper's perceptron of many layers on MNIST below DATA: EOI at density 0.125 in every layer but the first, which has
one of several densities. All networks train in one stack, with the epochs and the rate given here (shallower networks
need a higher one). For each density: test accuracy, its mean, its standard deviation over the seeds and its least; the
pixels that the first layer sees; and the share of the images' variance in those pixels.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean, stdev
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor

from orthosparse import sparsify
from orthosparse.lab.data import Dataset, load
from orthosparse.lab.experiments.training import Training
from orthosparse.lab.seeds import generators
from orthosparse.lab.training.assembly import started
from orthosparse.lab.training.loop import evaluate, fit
from orthosparse.lab.training.stacked.assembly import stack_of
from orthosparse.lab.training.starts import Start

REST = 0.125
DENSITIES = (0.125, 0.025, 0.0125, 0.006, 0.003)


def start_of(run: Training, seed: int, density: float, data: Dataset) -> dict[str, Any]:
    """Return the state dict of an EOI start whose first layer has a density of its own."""
    network = started(run, seed, data, torch.device("cpu"))
    first, *_ = (name for name, module in network.named_modules() if hasattr(module, "weight"))
    recipe = run.recipe
    sparsify(
        network,
        {"*": REST, first: density},
        gain=recipe.gain,
        bias_std=recipe.bias_std,
        generator=generators(seed).mask,
        progress=False,
    )
    return network.state_dict()


def seen(state: dict[str, Tensor]) -> Tensor:
    """Return which pixels the first layer sees."""
    first = next(name for name in state if name.endswith("weight_mask"))
    return state[first].any(0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data")
    parser.add_argument("--depth", type=int, default=100)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--lr", type=float, default=0.001)
    parser.add_argument("--seeds", default="1,2,3,4,5")
    given = parser.parse_args()
    seeds = [int(seed) for seed in given.seeds.split(",")]
    data, fabric = load("mnist", given.data), Fabric(accelerator="cpu", devices=1)
    run = Training("mlp1000", "mnist", 1.0, model_options={"depth": given.depth})
    run = replace(run, recipe=replace(run.recipe, epochs=given.epochs, lr=given.lr, precision="fp32"))
    pairs = [(run, seed) for _ in DENSITIES for seed in seeds]
    states = [start_of(run, seed, density, data) for density in DENSITIES for seed in seeds]
    stack = stack_of(pairs, [Start.of(state) for state in states], data, fabric)
    fit(stack)
    accuracies = [100 * each["accuracy"] for each in evaluate(stack, stack.test)]
    variance = data.train.images.float().flatten(1).var(0)
    for index, density in enumerate(DENSITIES):
        own = slice(index * len(seeds), (index + 1) * len(seeds))
        print_row(density, accuracies[own], [seen(state) for state in states[own]], variance)


def print_row(density: float, accuracies: Sequence[float], pixels: Sequence[Tensor], variance: Tensor) -> None:
    share = fmean(float(variance[each].sum() / variance.sum()) for each in pixels)
    count = fmean(int(each.sum()) for each in pixels)
    spread = stdev(accuracies) if len(accuracies) > 1 else 0.0
    each = " ".join(f"{accuracy:.2f}" for accuracy in accuracies)
    print(f"{density}: {fmean(accuracies):.2f} ({spread:.2f}), least {min(accuracies):.2f} [{each}];", end=" ")
    print(f"{count:.0f} pixels, {share:.3f} of the variance")


if __name__ == "__main__":
    main()
