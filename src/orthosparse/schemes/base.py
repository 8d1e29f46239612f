"""Base: the model's own dense initialization, times the masks."""

from collections.abc import Mapping

import torch
from torch import nn

from orthosparse.aliases import Masks
from orthosparse.distributed import zero_off_
from orthosparse.layers import Layer
from orthosparse.randomness import draw_seed
from orthosparse.schemes._fill import check_scales, fill_biases, match_layers


def base(
    model: nn.Module,
    masks: Masks,
    *,
    layers: Mapping[str, Layer] | None = None,
    gain: float = 1.0,
    bias_std: float = 0.0,
    generator: torch.Generator | None = None,
) -> Masks:
    """Set the weights outside the masks to zero and keep the others.

    The dense initialization of your model already has a gain, so `gain` is ignored. If `bias_std` is 0, the biases are
    kept too.

    Example:
        >>> model = nn.Linear(3, 2)
        >>> masks = base(model, {"weight": torch.tensor([[True, False, False], [False, False, True]])})
        >>> model.weight.count_nonzero().item()
        2
    """
    layers, seed = match_layers(model, masks, layers), draw_seed(generator)
    _, bias_std = check_scales(layers, gain, bias_std)
    for name, layer in layers.items():
        zero_off_(layer.parameter(), masks[name])
        if bias_std:
            fill_biases(layer, bias_std, seed)
    return dict(masks)
