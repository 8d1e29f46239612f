"""The weights that scores are made of: whole, finite, and precise enough to be multiplied."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from orthosparse.aliases import Scores
from orthosparse.distributed import is_sharded
from orthosparse.layers import Layer


def weights_of(layers: Mapping[str, Layer]) -> Scores:
    """Return the weights, detached, not copied.

    Raises:
        ValueError: a layer has weights that are not finite.
    """
    weights = {name: layer.parameter().detach() for name, layer in layers.items()}
    for name, weight in weights.items():
        least, most = weight.aminmax()  # NaN where there is one; twenty times faster than isfinite over all of them
        if not (least.isfinite() and most.isfinite()):
            raise ValueError(f"model: expected finite weights; layer {name!r} has NaN or infinite ones")
    return weights


def keys_of(model: nn.Module, layers: Mapping[str, Layer]) -> dict[str, str]:
    """Return the name of each layer's parameter in `model`.

    Raises:
        ValueError: the parameters are sharded: a forward pass would gather them over those it is lent.
    """
    for name, parameter in model.named_parameters():
        if is_sharded(parameter):
            raise ValueError(f"model: expected whole parameters to score; {name!r} is sharded: score before sharding")
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return {name: names[id(layer.parameter())] for name, layer in layers.items()}


def precise(tensor: Tensor) -> Tensor:
    """Return `tensor` in float32, or float64 where it is that: products of half-precision numbers would tie."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))
