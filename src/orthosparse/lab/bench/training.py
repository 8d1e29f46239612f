"""How fast training is: a plain loop, the lab's loop on the dense network, and on the masked one, side by side."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import torch
from torch.nn import functional

from orthosparse.lab.data import Augmentation, Dataset, Normalisation, Split, load
from orthosparse.lab.provenance import provenance
from orthosparse.lab.seeds import fenced
from orthosparse.lab.training import Run, State, assemble, launch, recipe_for
from orthosparse.lab.training.devices import arithmetic
from orthosparse.lab.training.step import Stepper

_log = logging.getLogger(__name__)
MODELS = ("resnet32", "resnet110")
Epoch = Callable[[int], None]


@dataclass(frozen=True)
class Setting:
    """What is timed.

    Attributes:
        root: the folder of CIFAR-10; None makes pictures up, which take as long.
        repeats: epochs that are timed of each variant, in turn; the median counts.
        steps: of an epoch; 0 for all.
        compiled: time the masked network as torch compiles it, too.
    """

    models: Sequence[str] = MODELS
    root: Path | None = None
    density: float = 0.1
    precision: str = "tf32"
    batch: int = 128
    repeats: int = 3
    steps: int = 0
    device: str = "auto"
    channels_last: bool | None = None
    compiled: bool = False


def measure(setting: Setting, say: Callable[[str], None] = _log.info) -> list[dict[str, Any]]:
    """Return one row for each model and variant: seconds an epoch, milliseconds a step, and the ratios.

    Args:
        say: is given a line as each epoch ends.
    """
    fabric = launch(device=setting.device, precision=setting.precision)
    data = _cifar10(setting, fabric.device)
    rows: list[dict[str, Any]] = []
    fence = fenced(0, [fabric.device] if fabric.device.type == "cuda" else [])
    with fence, arithmetic(setting.precision):
        for model in setting.models:
            rows += _measure(model, setting, fabric, data, say)
    return rows


def _measure(
    model: str, setting: Setting, fabric: Any, data: Dataset, say: Callable[[str], None]
) -> list[dict[str, Any]]:
    recipe = replace(recipe_for(model), precision=setting.precision, batch=setting.batch)
    nhwc = fabric.device.type == "cuda" if setting.channels_last is None else setting.channels_last

    def state(density: float, channels_last: bool) -> State:
        config = Run(model, "cifar10", recipe, density=density)
        return assemble(config, 1, fabric, data=data, channels_last=channels_last)

    plain = state(1.0, False)
    steps = min(setting.steps or len(plain.loader), len(plain.loader))
    epochs: dict[str, Epoch] = {
        "plain eager": _plain(plain, steps),
        "dense": _ours(state(1.0, nhwc), steps),
        "masked": _ours(state(setting.density, nhwc), steps),
    }
    if setting.compiled:
        epochs["compiled"] = _ours(state(setting.density, nhwc), steps, compiled=True)
    seconds: dict[str, list[float]] = {method: [] for method in epochs}
    for turn in range(setting.repeats + 1):
        for method, epoch in epochs.items():
            taken = _timed(epoch, turn, fabric.device)
            say(f"{model:10s} {method:12s} {taken:7.3f} s" + ("" if turn else "  (first, not counted)"))
            if turn:
                seconds[method].append(taken)
    middle = {method: median(times) for method, times in seconds.items()}
    return [
        {
            "model": model,
            "method": method,
            "precision": setting.precision,
            "channels_last": nhwc and method != "plain eager",
            "density": setting.density if method in ("masked", "compiled") else 1.0,
            "seconds_per_epoch": middle[method] * len(plain.loader) / steps,
            "milliseconds_per_step": 1e3 * middle[method] / steps,
            "steps": steps,
            "repeats": setting.repeats,
            "spread": (max(times) - min(times)) / middle[method],
            "faster_than_plain": middle["plain eager"] / middle[method],
            "cost_against_dense": middle[method] / middle["dense"] - 1,
            **provenance(fabric.device),
        }
        for method, times in seconds.items()
    ]


def _timed(epoch: Epoch, turn: int, device: torch.device) -> float:
    _wait(device)
    start = perf_counter()
    epoch(turn)
    _wait(device)
    return perf_counter() - start


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _plain(state: State, steps: int) -> Epoch:
    """Return an epoch as anybody would write it, on the same batches and in the same arithmetic."""
    recipe = state.recipe
    optimizer = torch.optim.SGD(
        state.networks.network.parameters(),
        lr=0.01,
        momentum=recipe.momentum,
        nesterov=True,
        weight_decay=recipe.weight_decay,
    )

    def epoch(number: int) -> None:
        for _, (images, labels) in zip(range(steps), state.loader.epoch(number), strict=False):
            optimizer.zero_grad()
            loss = functional.cross_entropy(state.networks.model(images), labels)
            state.fabric.backward(loss)  # Fabric has this do what `loss.backward()` does
            optimizer.step()

    return epoch


def _ours(state: State, steps: int, *, compiled: bool = False) -> Epoch:
    """Return an epoch of the lab's loop: everything that `fit` does but the validation."""
    if compiled:
        state.networks.compile()
    stepper = Stepper(state)
    state.networks.set_rate(0.01)  # a small one: what is timed must not diverge

    def epoch(number: int) -> None:
        state.epoch, state.step = number, 0
        for _, (images, labels) in zip(range(steps), state.loader.epoch(number), strict=False):
            stepper(images, labels)
        state.values()

    return epoch


def _cifar10(setting: Setting, device: torch.device) -> Dataset:
    if setting.root is not None:
        return load("cifar10", setting.root, device=device)
    generator = torch.Generator().manual_seed(0)
    normalisation = Normalisation((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))

    def split(size: int) -> Split:
        images = torch.randint(256, (size, 3, 32, 32), generator=generator, dtype=torch.uint8)
        return Split(images, torch.randint(10, (size,), generator=generator), normalisation)

    augmentation = Augmentation(pad=4, pad_mode="reflect", flip=True)
    made_up = Dataset("cifar10", split(45_000), None, split(1_000), classes=10)
    return replace(made_up, augmentation=augmentation).to(device)


def table(setting: Setting, rows: list[dict[str, Any]]) -> str:
    """Return the rows as a short table, below a line that says what was timed where."""
    lines = [
        f"CIFAR-10, batch {setting.batch}, {setting.precision}, {rows[0]['device'] if rows else ''}",
        f"{'model':10s} {'method':12s} {'s/epoch':>8s} {'ms/step':>8s} {'x plain':>8s} {'vs dense':>9s}",
    ]
    lines += [
        f"{row['model']:10s} {row['method']:12s} {row['seconds_per_epoch']:8.3f} {row['milliseconds_per_step']:8.3f} "
        f"{row['faster_than_plain']:8.2f} {100 * row['cost_against_dense']:+8.1f}%"
        for row in rows
    ]
    return "\n".join(lines)
