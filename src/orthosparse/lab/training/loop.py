"""The training loop, for one network or for many, and how good they are on data that they are not trained on."""

from collections.abc import Sequence
from contextlib import nullcontext
from time import perf_counter

import torch

from orthosparse.lab.data import Loader
from orthosparse.lab.seeds import fenced
from orthosparse.lab.training.callbacks import Callback
from orthosparse.lab.training.devices import arithmetic, threads_for
from orthosparse.lab.training.nonfinite import find_errors
from orthosparse.lab.training.state import State
from orthosparse.lab.training.step import Stepper, cross_entropy, hits


def fit(
    state: State, callbacks: Sequence[Callback] = (), *, graph: bool | None = None, deterministic: bool = False
) -> None:
    """Train from where `state` stands to the recipe's last epoch, or until no network is alive.

    A network whose loss or gradient is not finite stops where it is; `state.errors` then says why.

    Args:
        graph: see `Stepper`.
        deterministic: see `arithmetic`.
    """
    device, networks = state.fabric.device, state.networks
    fence = fenced(state.seed, [device] if device.type == "cuda" else [])
    weights = networks.count * networks.parameters
    threads = threads_for(weights, state.recipe.batch) if device.type == "cpu" else nullcontext()
    with fence, threads, arithmetic(state.recipe.precision, deterministic=deterministic):
        stepper = Stepper(state, graph=graph)
        networks.train()
        for callback in callbacks:
            callback.on_start(state)
        try:
            while state.epoch < state.recipe.epochs and state.is_alive():
                _epoch(state, stepper, callbacks)
        finally:
            for callback in callbacks:
                callback.on_end(state)


def _epoch(state: State, stepper: Stepper, callbacks: Sequence[Callback]) -> None:
    rate = state.set_rate()
    for callback in callbacks:
        callback.on_epoch_start(state)
    is_free_to_look = state.fabric.device.type == "cpu"  # a GPU would have to be waited for
    clock = perf_counter()
    for images, labels in state.loader.epoch(state.epoch, state.step):
        stepper(images, labels)
        now = perf_counter()
        state.seconds, clock = state.seconds + now - clock, now
        if is_free_to_look and not state.is_alive():
            break
        for callback in callbacks:
            callback.on_step(state)
        clock = perf_counter()
    metrics = _metrics(state, rate) if state.is_alive() else []
    state.seconds += perf_counter() - clock
    if not bool(state.records.alive.all()):
        find_errors(state)
    for place, own in enumerate(metrics):
        if place not in state.errors:
            state.histories[place].append({**own, "seconds": state.seconds})
    if metrics:
        state.epoch, state.step = state.epoch + 1, 0
        for callback in callbacks:
            callback.on_epoch(state)


def _metrics(state: State, rate: float) -> list[dict[str, float]]:
    """Return what an epoch gave, for each network: on the held-out samples too, or without any on the test samples."""
    metrics = [{"epoch": state.epoch + 1, "lr": rate, **summary} for summary in _summaries(state)]
    split, loader = ("test", state.test) if state.validation is None else ("validation", state.validation)
    for own, measured in zip(metrics, evaluate(state, loader), strict=True):
        own |= {f"{split}_{name}": value for name, value in measured.items()}
    return metrics


def _summaries(state: State) -> list[dict[str, float]]:
    counts = torch.tensor([state.loader.count(step) for step in range(state.step)], dtype=torch.float64)
    losses, norms, right = state.values().double()
    figures = zip(
        ((losses * counts[:, None]).sum(0) / counts.sum()).tolist(),
        (right.sum(0) / counts.sum()).tolist(),
        norms.mean(0).tolist(),
        strict=True,
    )
    return [{"loss": loss, "accuracy": accuracy, "gradient_norm": norm} for loss, accuracy, norm in figures]


@torch.no_grad()
def evaluate(state: State, loader: Loader) -> list[dict[str, float]]:
    """Return the mean cross-entropy and the accuracy of each network over a split, all ranks together."""
    networks = state.networks
    networks.train(False)
    total = torch.zeros(2, networks.count, dtype=torch.float64, device=state.fabric.device)
    for images, labels in loader.epoch(0):
        logits, target = networks(images), labels.expand(networks.count, -1)
        losses = cross_entropy(logits.to(networks.dtype), target)
        total += torch.stack([losses.double(), hits(logits, target).double()])
    networks.train()
    figures = (state.summed(total) / len(loader.split)).T.tolist()
    return [{"loss": loss, "accuracy": accuracy} for loss, accuracy in figures]
