"""The epochs of an ensemble."""

from collections.abc import Callable, Sequence
from time import perf_counter

import torch

from orthosparse.lab.training.ensemble.measures import evaluate
from orthosparse.lab.training.ensemble.state import Ensemble
from orthosparse.lab.training.ensemble.step import Step

Look = Callable[[Ensemble], None]


def fit(ensemble: Ensemble, step: Step, *, looks: Sequence[Look] = (), settle: Look) -> None:
    """Train from where the ensemble stands to the last epoch, or until no member is alive.

    Args:
        looks: called after every step and after every epoch.
        settle: called once an epoch has ended and its metrics are known; finds out why members have stopped.
    """
    while ensemble.epoch < ensemble.recipe.epochs and bool(ensemble.records.alive.any()):
        _epoch(ensemble, step, looks, settle)


def _epoch(ensemble: Ensemble, step: Step, looks: Sequence[Look], settle: Look) -> None:
    rate = ensemble.set_rate()
    clock = perf_counter()
    for images, labels in ensemble.feed.epoch(ensemble.epoch, ensemble.step):
        step(images, labels)
        now = perf_counter()
        ensemble.seconds, clock = ensemble.seconds + now - clock, now
        for look in looks:
            look(ensemble)
        clock = perf_counter()
    metrics = [{"epoch": ensemble.epoch + 1, "lr": rate, **summary} for summary in _summaries(ensemble)]
    if ensemble.validation is not None:
        for own, measured in zip(metrics, evaluate(ensemble, ensemble.validation), strict=True):
            own |= {f"validation_{name}": value for name, value in measured.items()}
    for own, measured in zip(metrics, evaluate(ensemble, ensemble.test), strict=True):
        own["test_accuracy"] = measured["accuracy"]
    alive = ensemble.records.alive.tolist()
    ensemble.seconds += perf_counter() - clock
    settle(ensemble)
    for history, own, lives in zip(ensemble.histories, metrics, alive, strict=True):
        if lives:
            history.append({**own, "seconds": ensemble.seconds})
    ensemble.epoch, ensemble.step = ensemble.epoch + 1, 0
    for look in looks:
        look(ensemble)


def _summaries(ensemble: Ensemble) -> list[dict[str, float]]:
    counts = torch.tensor([ensemble.feed.count(step) for step in range(len(ensemble.feed))], dtype=torch.float64)
    losses, norms, right = ensemble.records.values.double().cpu()
    figures = zip(
        ((losses * counts[:, None]).sum(0) / counts.sum()).tolist(),
        (right.sum(0) / counts.sum()).tolist(),
        norms.mean(0).tolist(),
        strict=True,
    )
    return [{"loss": loss, "accuracy": accuracy, "gradient_norm": norm} for loss, accuracy, norm in figures]
