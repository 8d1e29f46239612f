"""Time an epoch of the 7 x 100 tanh perceptron on MNIST, one core: a bare loop, dense, and `train` at density 0.1.

python benchmarks/mlp.py --root DIR [--epochs 10] [--density 0.1] [--out rows.jsonl]

The epochs take turns. The bare loop has no masks, no checks, no figures and no validation; `train` has all of them, its
log and its checkpoints. The target is 1.2 times the bare loop's time.
"""

import argparse
import json
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import torch
from torch.nn import functional

from orthosparse.hardware import on_threads
from orthosparse.lab.data import Split, load
from orthosparse.lab.models import build
from orthosparse.lab.provenance import provenance
from orthosparse.lab.training import Callback, Recipe, Run, State, recipe_for, train


def bare(split: Split, recipe: Recipe) -> Callable[[], None]:
    """Return an epoch of the dense network as anybody would write it, on images that are floats already."""
    generator = torch.Generator().manual_seed(0)
    model = build("mlp", classes=10, in_shape=(1, 28, 28), activation="tanh", generator=generator)
    assert isinstance(split.images, torch.Tensor)
    images, labels = (split.images.float() / 255 - 0.1307) / 0.3081, split.labels
    optimizer = torch.optim.SGD(
        model.parameters(), lr=recipe.lr, momentum=recipe.momentum, nesterov=True, weight_decay=recipe.weight_decay
    )

    def epoch() -> None:
        for chosen in torch.randperm(len(images), generator=generator).split(recipe.batch):
            optimizer.zero_grad()
            functional.cross_entropy(model(images[chosen]), labels[chosen]).backward()
            optimizer.step()

    return epoch


class Turns(Callback):
    """Times each epoch of a run, and one of the bare loop after it."""

    def __init__(self, other: Callable[[], None]) -> None:
        self.other, self.start = other, 0.0
        self.seconds: dict[str, list[float]] = {"bare": [], "train": []}

    def on_epoch_start(self, state: State) -> None:
        del state  # the clock alone
        self.start = perf_counter()

    def on_epoch(self, state: State) -> None:
        finished = perf_counter()
        self.other()
        self.seconds["train"].append(finished - self.start)
        self.seconds["bare"].append(perf_counter() - finished)
        print(f"epoch {state.epoch:3d}  " + "  ".join(f"{way} {s[-1]:.3f} s" for way, s in self.seconds.items()))


def measure(root: Path, epochs: int, density: float) -> dict[str, Any]:
    """Return one row: seconds an epoch of either way (the first is not counted), and their ratio, epoch by epoch."""
    recipe = replace(recipe_for("mlp"), epochs=epochs, schedule="constant")
    turns = Turns(bare(load("mnist", root).train, recipe))
    config = Run("mlp", "mnist", recipe, density=density, activation="tanh")
    with tempfile.TemporaryDirectory() as out:
        row = train(config, seed=1, root=root, out=out, device="cpu", callbacks=[turns])
    times = {way: seconds[1:] for way, seconds in turns.seconds.items()}
    return {
        **{f"{way}_seconds": median(seconds) for way, seconds in times.items()},
        "ratio": median(ours / bare for ours, bare in zip(times["train"], times["bare"], strict=True)),
        "ratio_of_shortest": min(times["train"]) / min(times["bare"]),
        "epochs": epochs,
        "density": density,
        "test_accuracy": row["test_accuracy"],
        **provenance(torch.device("cpu")),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, required=True, help="the folder of MNIST")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--density", type=float, default=0.1)
    parser.add_argument("--out", type=Path, help="a file to which the row is added")
    given = parser.parse_args()
    if given.epochs < 2:
        parser.error(f"--epochs: expected 2 or more, as the first is not counted; got {given.epochs}")
    with on_threads(1):
        row = measure(given.root, given.epochs, given.density)
    print(
        f"train {row['train_seconds']:.3f} s, bare {row['bare_seconds']:.3f} s an epoch (median); "
        f"ratio {row['ratio']:.2f}, of the shortest {row['ratio_of_shortest']:.2f}; "
        f"test accuracy {100 * row['test_accuracy']:.2f} %"
    )
    if given.out is not None:
        with given.out.open("a") as file:
            file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
