"""FORCE: SNIP in rounds, each scored at the weights that the round before kept."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from orthosparse.aliases import Density, Masks
from orthosparse.distributions._inputs import batches_of, weights_of
from orthosparse.distributions._masks import budget_of, falling, top_scored
from orthosparse.distributions._objective import objective_of
from orthosparse.hardware import precise
from orthosparse.layers import Layer
from orthosparse.progress import Progress, counted, reporter


def snip_iterative(
    model: nn.Module,
    density: Density,
    *,
    layers: Mapping[str, Layer] | None = None,
    batch: Any = None,
    loss: Callable[..., torch.Tensor] | None = None,
    generator: torch.Generator | None = None,
    rounds: int = 60,
    progress: Progress = False,
) -> Masks:
    """Return masks that SNIP finds in rounds, each scored on the model that the previous round pruned.

    After round t the density is ``density ** (t / rounds)``. A round scores |theta * dL/dtheta| with the dense theta
    and the gradient at the masked weights, so a removed weight can return. This is FORCE of de Jorge et al. (2021);
    what they call Iterative SNIP lets none return. All batches are kept in memory, and passed through the model as in
    `snip`.

    Args:
        rounds: number of rounds in which the density falls.
        progress: as in `sparsify`; counts rounds.

    Example:
        >>> g = torch.Generator().manual_seed(0)
        >>> x, y = torch.randn(8, 6, generator=g), torch.randint(3, (8,), generator=g)
        >>> masks = snip_iterative(nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 3)), 0.25, batch=(x, y), rounds=5)
        >>> sum(int(mask.sum()) for mask in masks.values())
        18
    """
    report = reporter(progress)
    layers, _ = budget_of(model, density, layers)
    counts = falling(density, layers, rounds)
    batches = list(batches_of(batch, model, "snip_iterative"))
    dense = weights_of(layers)
    masked, masks = dense, Masks()
    with objective_of(model, layers, loss, generator) as objective:
        for count in counted(counts, "snip_iterative", report):
            gradient = objective.gradient(masked, batches)
            masks = top_scored(
                layers, {name: (precise(dense[name]) * grad).abs() for name, grad in gradient.items()}, count
            )
            masked = {name: weight * masks[name] for name, weight in dense.items()}
    return masks
