"""Dense starts: orthogonal weights of every linear and convolution layer, from a generator."""

from collections.abc import Callable

import torch
from torch import nn

from orthosparse import Layer, find_layers, init
from orthosparse.randomness import derive, draw_seed
from orthosparse.registry import lookup

Fill = Callable[[Layer, torch.Tensor, float, torch.Generator], None]


def _by_matrix(layer: Layer, weight: torch.Tensor, gain: float, generator: torch.Generator) -> None:
    """Fill each matrix (group, fused block) as (out, in * taps)."""
    for (out, _), view in zip(layer.shapes, layer.views(weight), strict=True):
        flat = torch.empty(out, view.numel() // out, dtype=weight.dtype)
        view.copy_(init.orthogonal_(flat, gain=gain, generator=generator).view(view.shape))


def _delta(layer: Layer, weight: torch.Tensor, gain: float, generator: torch.Generator) -> None:
    init.delta_orthogonal_(weight, groups=layer.groups, gain=gain, transposed=layer.transposed, generator=generator)


def _all_taps(layer: Layer, weight: torch.Tensor, gain: float, generator: torch.Generator) -> None:
    init.conv_orthogonal_(weight, groups=layer.groups, gain=gain, transposed=layer.transposed, generator=generator)


# How convolutions are filled; other layers always by matrix. None: nothing is.
DENSE_INITS: dict[str, Fill | None] = {
    "conv_orthogonal": _all_taps,
    "default": None,
    "delta_orthogonal": _delta,
    "orthogonal": _by_matrix,
}


@torch.no_grad()
def dense_init(
    model: nn.Module,
    kind: str = "conv_orthogonal",
    *,
    gain: float = 1.0,
    bias_std: float = 0.0,
    generator: torch.Generator | None = None,
) -> None:
    """Fill the weights of every linear, convolution and recurrent layer, and their biases; leave all else as it is.

    Linear layers get orthogonal matrices, one for each fused block. Convolutions get a kernel for each group, of kind
    ``conv_orthogonal`` (all taps; Xiao et al. 2018, Algorithm 1), ``delta_orthogonal`` (the central tap) or
    ``orthogonal`` (the matrix of out x in * taps). ``default`` leaves the weights that `build` drew from its generator:
    torch's or timm's own. What a layer gets depends on the generator and the layer's name alone.

    Args:
        gain: sigma_w, a factor of the weights.
        bias_std: sigma_b, the deviation of the biases about 0.

    Raises:
        ValueError: an unknown kind; a gain or a bias_std with ``default``; a model that has masks.
    """
    fill = lookup(DENSE_INITS, kind, "kind")
    if fill is None:
        if gain != 1 or bias_std != 0:
            raise ValueError(f"kind: default takes no gain and no bias_std; got {gain} and {bias_std}")
        return
    layers = find_layers(model)
    for layer in layers.values():
        if layer.parameter() is not getattr(layer.module, layer.tensor):
            raise ValueError(f"model: expected a dense one; layer {layer.name} has a mask or another parametrization")
    seed = draw_seed(generator)
    for name, layer in layers.items():
        way = fill if layer.kind == "conv" else _by_matrix
        way(layer, layer.parameter(), gain, derive(seed, name, "weight"))
        for bias in layer.biases:
            _fill_bias(getattr(layer.module, bias), bias_std, derive(seed, name, bias))


def _fill_bias(bias: torch.Tensor, std: float, generator: torch.Generator) -> None:
    bias.copy_(torch.randn(bias.shape, generator=generator, dtype=torch.float64) * std)
