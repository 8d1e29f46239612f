"""Dense ends: the first and the last layer stay dense, all between them have the same density (SAO's profile)."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from orthosparse.aliases import Masks
from orthosparse.checks import check_density
from orthosparse.counts import count_of
from orthosparse.distributions._masks import budget_of, random_masks, share
from orthosparse.layers import Layer

_OVER = ("inner", "all")


def dense_ends(
    model: nn.Module,
    density: float,
    *,
    layers: Mapping[str, Layer] | None = None,
    batch: Any = None,
    loss: Callable[..., torch.Tensor] | None = None,
    generator: torch.Generator | None = None,
    over: str = "inner",
    ends: Sequence[str] | None = None,
) -> Masks:
    """Return masks that keep the first and the last layer dense, and random ones of the same density in all others.

    This is the distribution of SAO's networks: SAO needs certain shapes and densities (a degree divided by a width), so
    the inner layers get exactly `density`, and the model as a whole more (section 5.2).

    Args:
        over: the layers that `density` applies to: ``"inner"``, those between the ends, as in SAO; or ``"all"``, the
            whole model, so that the inner layers give up what the ends take.
        ends: names of the layers that stay dense; by default, the first and the last in module order.

    Raises:
        TypeError: `density` is a mapping.
        ValueError: there is no layer between the ends, or ``over="all"`` asks for fewer weights than the ends have.

    Example:
        >>> model = nn.Sequential(nn.Linear(20, 8), nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 2))
        >>> {name: int(mask.sum()) for name, mask in dense_ends(model, 0.125).items()}
        {'0': 160, '1': 8, '2': 8, '3': 16}
    """
    del batch, loss  # data-free
    layers, _ = budget_of(model, check_density(density), layers)
    if over not in _OVER:
        raise ValueError(f"over: expected one of {', '.join(_OVER)}; got {over!r}")
    full = _ends(layers, ends)
    inner = {name: layer for name, layer in layers.items() if name not in full}
    sizes = {name: layer.numel for name, layer in inner.items()}
    if over == "inner":
        count = count_of(density, sum(sizes.values()))
    else:
        count = count_of(density, sum(layer.numel for layer in layers.values()))
        count -= sum(layers[name].numel for name in full)
        if count < 0:
            raise ValueError(f"density: expected enough for {', '.join(sorted(full))} to stay dense; got {density!r}")
    counts = share(inner, sizes, count) | {name: layers[name].numel for name in full}
    return random_masks(layers, counts, generator)


def _ends(layers: Mapping[str, Layer], ends: Sequence[str] | None) -> set[str]:
    chosen = {_first(layers), list(layers)[-1]} if ends is None else set(ends)
    if unknown := sorted(chosen - set(layers)):
        raise ValueError(f"ends: expected names of layers; {', '.join(unknown)} is none of {', '.join(layers)}")
    if len(chosen) == len(layers):
        raise ValueError(f"model: expected a layer between its ends; got {', '.join(layers)} alone")
    return chosen


def _first(layers: Mapping[str, Layer]) -> str:
    """The first layer's name; of a recurrent module the weights that meet the input."""
    module = next(iter(layers.values())).module
    beside = [name for name, layer in layers.items() if layer.module is module]
    return min(beside, key=lambda name: layers[name].tensor.startswith("weight_hh"))
