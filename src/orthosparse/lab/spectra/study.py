"""The points of section 5.1: a 7 x 100 network on MNIST, by distribution, activation, density and scheme."""

from itertools import product
from typing import Any

from orthosparse.lab.experiments import Spectrum

ACTIVATIONS = ("linear", "tanh", "hardtanh", "relu")
DISTRIBUTIONS = ("uniform", "erk", "snip", "grasp", "synflow")
SCHEMES = ("base", "ai", "eoi")
COMPATS = ("paper-code",)
DENSITIES = (0.03, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)

_SCORED = ("snip", "grasp", "synflow")  # distributions that have a `compat`


def experiments(*, ai_iterations: int | None = None, compat: str | None = None) -> list[Spectrum]:
    """Return all points of the figure; SynFlow needs an activation that is linear for positive inputs.

    Args:
        ai_iterations: of AI's descent; None: its own number, which is the paper's.
        compat: ``paper-code`` for the scores as the paper's released code computes them.

    Raises:
        ValueError: either is none that a point would take.

    Example:
        >>> len(experiments())  # (4 x 4 + 2) x 3 x 12
        648
    """
    if ai_iterations is not None and ai_iterations < 0:
        raise ValueError(f"ai_iterations: expected 0 or more; got {ai_iterations}")
    if compat not in (None, *COMPATS):
        raise ValueError(f"compat: expected one of {', '.join(COMPATS)}; got {compat!r}")
    return [
        Spectrum(activation, distribution, scheme, density, ai_iterations, _options(distribution, compat))
        for distribution, activation, density, scheme in product(DISTRIBUTIONS, ACTIVATIONS, DENSITIES, SCHEMES)
        if distribution != "synflow" or activation in ("linear", "relu")
    ]


def _options(distribution: str, compat: str | None) -> dict[str, Any]:
    return {"compat": compat} if compat is not None and distribution in _SCORED else {}
