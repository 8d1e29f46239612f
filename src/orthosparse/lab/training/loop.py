"""The training loop for one network or a stack of them, and their evaluation on held-out data."""

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
    """Train from the position of `state` to the recipe's last epoch, or until no network is alive.

    A network whose loss or gradient is not finite stops; `state.errors` then has the reason.

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
    can_check_often = state.fabric.device.type == "cpu"  # on a GPU it would synchronize
    clock = perf_counter()
    for images, labels in state.loader.epoch(state.epoch, state.step):
        stepper(images, labels)
        now = perf_counter()
        state.seconds, clock = state.seconds + now - clock, now
        if can_check_often and not state.is_alive():
            break
        for callback in callbacks:
            callback.on_step(state)
        clock = perf_counter()
    metrics = _metrics(state, rate) if state.is_alive() else []
    state.seconds += perf_counter() - clock
    if not bool(state.records.alive.all()):
        find_errors(state)
    for index, of_network in enumerate(metrics):
        if index not in state.errors:
            state.histories[index].append({**of_network, "seconds": state.seconds})
    if metrics:
        state.epoch, state.step = state.epoch + 1, 0
        for callback in callbacks:
            callback.on_epoch(state)


def _metrics(state: State, rate: float) -> list[dict[str, float]]:
    """Return the metrics of an epoch for each network, including those of the held-out (or else the test) samples."""
    metrics = [{"epoch": state.epoch + 1, "lr": rate, **summary} for summary in _summaries(state)]
    split, loader = ("test", state.test) if state.validation is None else ("validation", state.validation)
    for of_network, evaluated in zip(metrics, evaluate(state, loader), strict=True):
        of_network |= {f"{split}_{name}": value for name, value in evaluated.items()}
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
    """Return the mean cross-entropy and the accuracy of each network over a split, summed over all ranks."""
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
