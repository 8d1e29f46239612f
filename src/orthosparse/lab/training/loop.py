"""The training loop."""

from collections.abc import Sequence
from contextlib import nullcontext
from time import perf_counter

import torch
from torch import Tensor

from orthosparse.lab.seeds import fenced
from orthosparse.lab.threads import threads_for
from orthosparse.lab.training.callbacks import Callback
from orthosparse.lab.training.devices import arithmetic
from orthosparse.lab.training.evaluate import evaluate
from orthosparse.lab.training.state import State
from orthosparse.lab.training.stepper import Stepper


def fit(
    state: State,
    callbacks: Sequence[Callback] = (),
    *,
    graph: bool | None = None,
    compiled: bool = False,
    deterministic: bool = False,
) -> None:
    """Train from where `state` stands to the recipe's last epoch.

    Args:
        graph, compiled: see `Stepper`.
        deterministic: see `arithmetic`.

    Raises:
        NonFiniteError: a loss or a gradient was not finite; it says where.
    """
    device, precision = state.fabric.device, state.recipe.precision
    fence = fenced(state.seed, [device] if device.type == "cuda" else [])
    weights = sum(parameter.numel() for parameter in state.network.parameters())
    threads = threads_for(weights, state.recipe.batch) if device.type == "cpu" else nullcontext()
    with fence, threads, arithmetic(precision, deterministic=deterministic):
        stepper = Stepper(state, graph=graph, compiled=compiled)
        state.model.train()
        for callback in callbacks:
            callback.on_start(state)
        try:
            while state.epoch < state.recipe.epochs:
                _epoch(state, stepper, callbacks)
        finally:
            for callback in callbacks:
                callback.on_end(state)
            if compiled:
                torch.compiler.reset()  # torch compiles eight networks with masks, and runs any more as they are


def _epoch(state: State, stepper: Stepper, callbacks: Sequence[Callback]) -> None:
    rate = state.set_rate()
    stepper.remember()
    for callback in callbacks:
        callback.on_epoch_start(state)
    clock = perf_counter()
    for images, labels in state.loader.epoch(state.epoch, state.step):
        stepper(images, labels)
        now = perf_counter()
        state.seconds, clock = state.seconds + now - clock, now
        for callback in callbacks:
            callback.on_step(state, stepper.verify)
    metrics = {"epoch": state.epoch + 1, "lr": rate, **_summary(state, stepper.verify())}
    if state.validation is not None:
        measured = evaluate(state, state.validation)
        metrics |= {f"validation_{name}": value for name, value in measured.items()}
    state.seconds += perf_counter() - clock
    metrics["seconds"] = state.seconds
    state.history.append(metrics)
    state.epoch, state.step = state.epoch + 1, 0
    state.tally.reset()
    for callback in callbacks:
        callback.on_epoch(state, metrics)


def _summary(state: State, values: Tensor) -> dict[str, float]:
    counts = torch.tensor([state.loader.count(step) for step in range(state.step)], dtype=torch.float64)
    losses, norms, right = values.double()
    return {
        "loss": float((losses * counts).sum() / counts.sum()),
        "accuracy": float(right.sum() / counts.sum()),
        "gradient_norm": float(norms.mean()),
    }
