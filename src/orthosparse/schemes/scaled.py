"""Scaled: random values on the masks, multiplied by 1 / sqrt(density), so that outputs are as large as dense ones."""

import math
from collections.abc import Mapping

import torch
from torch import nn

from orthosparse.aliases import Masks
from orthosparse.distributed import full_tensor, write_
from orthosparse.hardware import on_threads
from orthosparse.layers import Layer
from orthosparse.masks import counts_of
from orthosparse.randomness import derive, draw_seed
from orthosparse.schemes._fill import FARTHEST_DRAW, check_scales, fill_biases, match_layers


def scaled(
    model: nn.Module,
    masks: Masks,
    *,
    layers: Mapping[str, Layer] | None = None,
    gain: float = 1.0,
    bias_std: float = 0.0,
    generator: torch.Generator | None = None,
) -> Masks:
    """Fill the masks with draws from N(0, s^2 / density), where s is the root mean square of the layer's dense weights.

    For independent inputs of mean square q, an output of the dense layer has mean square ``fan_in * s^2 * q``. The
    sparse layer keeps a fraction `density` of the weights, each with ``1 / density`` times the variance, so the mean
    square over all outputs of the layer stays the same. The dense initialization of your model already has a gain, so
    `gain` is ignored.

    Raises:
        ValueError: the weights of a layer are not finite, or their dtype cannot hold the scaled ones.

    Example:
        >>> g = torch.Generator().manual_seed(0)
        >>> model = nn.Linear(256, 256)
        >>> masks = scaled(model, {"weight": torch.rand(256, 256, generator=g) < 0.25}, generator=g)
        >>> round(256 * model.weight.square().mean().item(), 1)  # torch draws weights of variance 1 / (3 * 256)
        0.3
    """
    layers, seed = match_layers(model, masks, layers), draw_seed(generator)
    _, bias_std = check_scales(layers, gain, bias_std)
    counts = counts_of(masks)
    deviations = {name: _deviation(layer, counts[name]) for name, layer in layers.items()}
    for name, layer in layers.items():
        draws = torch.randn(counts[name], generator=derive(seed, name), dtype=torch.float64, device="cpu")
        weight = torch.zeros(layer.shape, dtype=layer.parameter().dtype, device="cpu")
        weight.masked_scatter_(masks[name].cpu(), draws.mul_(deviations[name]).to(weight.dtype))
        write_(layer.parameter(), weight)
        fill_biases(layer, bias_std, seed)
    return dict(masks)


def _deviation(layer: Layer, count: int) -> float:
    """Return the standard deviation of the active weights."""
    weight = full_tensor(layer.parameter()).to("cpu", torch.float64).contiguous()
    with on_threads(1):
        squares = float(torch.linalg.vector_norm(weight) ** 2)
    deviation = math.sqrt(squares / max(count, 1))
    limit = torch.finfo(layer.parameter().dtype).max / FARTHEST_DRAW
    if not deviation <= limit:  # also true for NaN
        raise ValueError(
            f"model: expected weights whose standard deviation / sqrt(density) is at most {limit:.3g}; "
            f"{layer.name!r} has {deviation:.3g}"
        )
    return deviation
