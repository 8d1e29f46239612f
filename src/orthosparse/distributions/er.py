"""Erdős–Rényi: a layer's density scales as (n_in + n_out) / (n_in n_out)."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from orthosparse.aliases import Density, Masks
from orthosparse.distributions._masks import budget_of, random_masks, share, sides_of
from orthosparse.layers import Layer


def er(
    model: nn.Module,
    density: Density,
    *,
    layers: Mapping[str, Layer] | None = None,
    batch: Any = None,
    loss: Callable[..., torch.Tensor] | None = None,
    generator: torch.Generator | None = None,
) -> Masks:
    """Return random masks with densities proportional to (n_in + n_out) / (n_in n_out), at most 1.

    The taps of a kernel do not count, so a convolution has the density of its channel matrix (Mocanu et al. 2018).

    Example:
        >>> masks = er(nn.Sequential(nn.Linear(10, 30), nn.Linear(30, 10), nn.Linear(10, 2)), 0.25)
        >>> {name: int(mask.sum()) for name, mask in masks.items()}  # 40 : 40 : 12, 155 in all
        {'0': 68, '1': 67, '2': 20}
    """
    del batch, loss  # data-free
    layers, count = budget_of(model, density, layers)
    shares = {name: sides_of(layer) * layer.taps for name, layer in layers.items()}
    return random_masks(layers, share(layers, shares, count), generator)
