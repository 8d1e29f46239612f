"""Uniform: every layer has the same density."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from orthosparse.aliases import Density, Masks
from orthosparse.checks import check_density
from orthosparse.distributions._masks import bernoulli, budget_of, follows_paper_code, random_masks, share
from orthosparse.layers import Layer


def uniform(
    model: nn.Module,
    density: Density,
    *,
    layers: Mapping[str, Layer] | None = None,
    batch: Any = None,
    loss: Callable[..., torch.Tensor] | None = None,
    generator: torch.Generator | None = None,
    compat: str | None = None,
) -> Masks:
    """Return random masks with the same density in every layer.

    Args:
        compat: ``"paper-code"`` keeps each entry independently with probability `density`, so the counts are random.

    Example:
        >>> masks = uniform(nn.Sequential(nn.Linear(10, 30), nn.Linear(30, 5)), 0.25)
        >>> {name: int(mask.sum()) for name, mask in masks.items()}  # 75 and 37.5, 113 in all
        {'0': 75, '1': 38}
    """
    del batch, loss  # data-free
    layers, count = budget_of(model, density, layers)
    if follows_paper_code(compat):
        return bernoulli(layers, dict.fromkeys(layers, check_density(density)), generator)
    return random_masks(layers, share(layers, {name: layer.numel for name, layer in layers.items()}, count), generator)
