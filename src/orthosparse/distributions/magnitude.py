"""Magnitude: the largest |theta| of the whole model."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from orthosparse.aliases import Density, Masks
from orthosparse.checks import check_finite
from orthosparse.distributed import full_tensor
from orthosparse.distributions._masks import budget_of, top_scored
from orthosparse.layers import Layer


def magnitude(
    model: nn.Module,
    density: Density,
    *,
    layers: Mapping[str, Layer] | None = None,
    batch: Any = None,
    loss: Callable[..., torch.Tensor] | None = None,
    generator: torch.Generator | None = None,
) -> Masks:
    """Return masks of the weights with the largest absolute values, over all layers together; ties keep the first.

    Raises:
        ValueError: a layer has weights that are not finite.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 1, bias=False), nn.Linear(1, 2, bias=False))
        >>> nn.init.constant_(model[0].weight, -0.5), nn.init.constant_(model[1].weight, 0.1)  # doctest: +ELLIPSIS
        (...)
        >>> magnitude(model, 0.75)
        {'0': tensor([[True, True]]), '1': tensor([[ True],
                [False]])}
    """
    del batch, loss  # data-free
    del generator  # nothing is drawn
    layers, count = budget_of(model, density, layers)
    scores = {name: full_tensor(layer.parameter()).abs() for name, layer in layers.items()}
    check_finite(scores, "model: expected finite weights")
    return top_scored(layers, scores, count)
