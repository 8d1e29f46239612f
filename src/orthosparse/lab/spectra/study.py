"""The study of section 5.1: which experiments, and the singular values of each at the start of training."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias

from torch import Tensor

import orthosparse
from orthosparse import isometry
from orthosparse.lab.data import Dataset, Loader
from orthosparse.lab.models import build, dense_init
from orthosparse.lab.seeds import generators
from orthosparse.lab.spectra.figure import render
from orthosparse.lab.spectra.rows import Rows

__all__ = [
    "ACTIVATIONS",
    "DENSITIES",
    "DISTRIBUTIONS",
    "SCHEMES",
    "Experiment",
    "batch_of",
    "experiments",
    "measure",
    "render",
    "run",
]

ACTIVATIONS = ("linear", "tanh", "hardtanh", "relu")
DISTRIBUTIONS = ("uniform", "erk", "snip", "grasp", "synflow")
SCHEMES = ("base", "ai", "eoi")
DENSITIES = (0.03, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)

_SCORED = ("snip", "grasp", "synflow")  # distributions that have a `compat`
_BATCH, _CLASSES = 128, 10

Batch: TypeAlias = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Experiment:
    """One point of the figure.

    Attributes:
        ai_iterations: of AI's descent, 0 for the other schemes. The paper has 10^4.
        compat: ``paper-code`` for the scores as the paper's released code computes them.
    """

    activation: str
    distribution: str
    scheme: str
    density: float
    ai_iterations: int = 0
    compat: str | None = None

    @property
    def key(self) -> str:
        """What its rows are known by."""
        parts = [self.activation, self.distribution, self.scheme, f"{self.density:g}"]
        return "-".join(parts + [f"ai{self.ai_iterations}"] * bool(self.ai_iterations) + [self.compat or ""]).strip("-")


def experiments(*, ai_iterations: int = 1000, compat: str | None = None) -> list[Experiment]:
    """Return all points of the figure; SynFlow needs an activation that is linear for positive inputs.

    Example:
        >>> len(experiments())  # (4 x 4 + 2) x 3 x 12
        648
    """
    return [
        Experiment(
            activation,
            distribution,
            scheme,
            density,
            ai_iterations if scheme == "ai" else 0,
            compat if distribution in _SCORED else None,
        )
        for distribution, activation, density, scheme in product(DISTRIBUTIONS, ACTIVATIONS, DENSITIES, SCHEMES)
        if distribution != "synflow" or activation in ("linear", "relu")
    ]


def run(
    asked: Sequence[Experiment],
    data: Dataset,
    path: Path,
    *,
    seeds: Sequence[int] = (1,),
    announce: Callable[[int], None] | None = None,
) -> list[dict[str, Any]]:
    """Return a row for each experiment and seed: those that `path` has, and the others computed and appended to it.

    Args:
        announce: told how many rows are there, before each new one.
    """
    rows, batches = Rows(path), {seed: batch_of(data, seed) for seed in seeds}
    wanted = [(experiment, seed) for seed in seeds for experiment in asked]
    missing = [(experiment, seed) for experiment, seed in wanted if not rows.has(experiment.key, seed)]
    for number, (experiment, seed) in enumerate(missing, len(wanted) - len(missing)):
        if announce is not None:
            announce(number)
        rows.append(experiment.key, seed, {**asdict(experiment), **measure(experiment, batches[seed], seed)})
    return [rows.get(experiment.key, seed) for experiment, seed in wanted]


def batch_of(data: Dataset, seed: int) -> Batch:
    """Return the first 128 images of training, normalised, and their labels."""
    return next(Loader(data.train, batch=_BATCH, seed=generators(seed).data.initial_seed()).epoch(0))


def measure(experiment: Experiment, batch: Batch, seed: int) -> dict[str, Any]:
    """Return the statistics of the singular values, 10 for each input, and what the start is like.

    As in the paper: orthogonal weights times 1, no biases, the Jacobian of the logits with respect to the normalised
    image; SNIP and GraSP look at the same batch.
    """
    start, draw, (images, _) = time.perf_counter(), generators(seed), batch
    in_shape = (images.shape[1], images.shape[2], images.shape[3])
    model = build("mlp", classes=_CLASSES, in_shape=in_shape, activation=experiment.activation, generator=draw.init)
    dense_init(model, "orthogonal", generator=draw.init)
    report = orthosparse.sparsify(
        model,
        experiment.density,
        distribution=experiment.distribution,
        scheme=experiment.scheme,
        batch=batch,
        generator=draw.mask,
        **_options(experiment),
    )
    spectrum = isometry.singular_values(model, images)
    return {
        "mean": spectrum.mean,
        "max": spectrum.max,
        "min": spectrum.min,
        "std": spectrum.std,
        "got": report.got,
        "worst_orthogonality": max(row.orthogonality for row in report.rows),
        "raised_layers": sum("raised" in row.note for row in report.rows),
        "seconds": round(time.perf_counter() - start, 3),
    }


def _options(experiment: Experiment) -> dict[str, Any]:
    own: dict[str, Any] = {}
    if experiment.scheme == "ai":
        own["iterations"] = experiment.ai_iterations
    if experiment.compat is not None:
        own["compat"] = experiment.compat
    return own
