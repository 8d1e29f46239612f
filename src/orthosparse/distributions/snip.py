"""SNIP: the largest |theta * dL/dtheta| of the whole model, on data."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn.functional import nll_loss

from orthosparse.aliases import Density, Masks
from orthosparse.checks import check_density
from orthosparse.distributions._inputs import batches_of, weights_of
from orthosparse.distributions._masks import budget_of, follows_paper_code, top_scored
from orthosparse.distributions._objective import objective_of
from orthosparse.hardware import precise
from orthosparse.layers import Layer


def snip(
    model: nn.Module,
    density: Density,
    *,
    layers: Mapping[str, Layer] | None = None,
    batch: Any = None,
    loss: Callable[..., torch.Tensor] | None = None,
    generator: torch.Generator | None = None,
    compat: str | None = None,
) -> Masks:
    """Return masks of the weights with the largest |theta * dL/dtheta|, whose removal changes the loss most.

    The change is taken to first order, with one forward and one backward pass over each batch in train mode: batch norm
    uses the statistics of the batch (and does not update the running ones), and dropout draws from `generator`. With
    several batches, L is the sum of their losses (section 3.3; Lee et al. 2019).

    Args:
        compat: ``"paper-code"`` treats the outputs of the model as log-probabilities, so that the loss is
            -output[target], and keeps ``int(density * N)`` of N weights.

    Example:
        >>> g = torch.Generator().manual_seed(0)
        >>> x, y = torch.randn(8, 6, generator=g), torch.randint(3, (8,), generator=g)
        >>> masks = snip(nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)), 0.5, batch=(x, y))
        >>> sum(int(mask.sum()) for mask in masks.values())
        36
    """
    layers, count = budget_of(model, density, layers)
    if follows_paper_code(compat):
        if loss is not None:
            raise ValueError("loss: expected None beside compat='paper-code', which has a loss of its own")
        loss, count = nll_loss, int(check_density(density) * sum(layer.numel for layer in layers.values()))
    weights = weights_of(layers)
    with objective_of(model, layers, loss, generator) as objective:
        gradient = objective.gradient(weights, batches_of(batch, model, "snip"))
    return top_scored(layers, {name: (precise(weights[name]) * grad).abs() for name, grad in gradient.items()}, count)
