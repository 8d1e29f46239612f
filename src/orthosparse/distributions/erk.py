"""Erdős–Rényi-Kernel: a layer's density scales as the sum of its sides over their product, the kernel's included."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from orthosparse.aliases import Density, Masks
from orthosparse.checks import check_density
from orthosparse.distributions._masks import bernoulli, budget_of, follows_paper_code, random_masks, share, sides_of
from orthosparse.layers import Layer


def erk(
    model: nn.Module,
    density: Density,
    *,
    layers: Mapping[str, Layer] | None = None,
    batch: Any = None,
    loss: Callable[..., torch.Tensor] | None = None,
    generator: torch.Generator | None = None,
    compat: str | None = None,
) -> Masks:
    """Return random masks with densities proportional to (n_in + n_out + w + h) / (n_in n_out w h), at most 1.

    What a full layer cannot take goes to the others in the same proportions (section 3.3; Evci et al. 2020).

    Args:
        compat: ``"paper-code"`` keeps each entry independently with the probability of its layer, so the counts are
            random.

    Example:
        >>> masks = erk(nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3), nn.Linear(8, 2)), 0.3)
        >>> {name: int(mask.sum()) for name, mask in masks.items()}  # 17 : 22 : 10, 242 in all, the last one full
        {'0': 99, '1': 127, '2': 16}
    """
    del batch, loss  # data-free
    layers, count = budget_of(model, density, layers)
    shares = {name: sides_of(layer) + sum(layer.kernel) for name, layer in layers.items()}
    counts = share(layers, shares, count)
    if follows_paper_code(compat):
        check_density(density)
        return bernoulli(layers, {name: counts[name] / layer.numel for name, layer in layers.items()}, generator)
    return random_masks(layers, counts, generator)
