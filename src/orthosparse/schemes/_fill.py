"""Steps that the schemes share: match masks with layers, write whole weights, draw biases."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import nn

from orthosparse.aliases import Masks
from orthosparse.checks import check_gain, check_number, check_parameter
from orthosparse.distributed import full_tensor, is_sharded, write_
from orthosparse.layers import Layer, find_layers, leaf
from orthosparse.randomness import derive

FARTHEST_DRAW = 9  # std: torch's normal numbers come from uniform ones of 53 bits, sqrt(2 * 53 ln 2) < 9


def match_layers(model: nn.Module, masks: Masks, layers: Mapping[str, Layer] | None) -> dict[str, Layer]:
    """Return the layers that `masks` names, in its order.

    Raises:
        ValueError: a name is not that of a layer, a mask has another shape than its weight, or a weight is on the meta
            device.
        TypeError: a mask is not a bool tensor, or no scheme can fill the dtype of a weight.
    """
    known = find_layers(model) if layers is None else layers
    for name, mask in masks.items():
        if name not in known:
            raise ValueError(f"masks: expected names of layers ({', '.join(known) or 'there are none'}); got {name!r}")
        if not isinstance(mask, torch.Tensor) or mask.dtype != torch.bool:
            raise TypeError(f"masks: expected bool tensors; got {getattr(mask, 'dtype', mask)!r} for {name!r}")
        check_parameter(name, known[name].parameter())
        if mask.shape != known[name].shape:
            raise ValueError(f"masks: expected shape {tuple(known[name].shape)} for {name!r}; got {tuple(mask.shape)}")
    return {name: known[name] for name in masks}


@contextmanager
def full_weight(parameter: nn.Parameter) -> Iterator[torch.Tensor]:
    """Yield the whole tensor of a parameter to read and write; a sharded parameter is updated at the end."""
    full = full_tensor(parameter)
    with torch.no_grad():
        yield full
    if is_sharded(parameter):
        write_(parameter, full)


def fill_biases(layer: Layer, std: float, seed: int) -> None:
    """Fill the layer's biases with draws from N(0, std), zeros where `std` is 0."""
    for name in layer.biases:
        parameter = leaf(layer.module, name)
        values = torch.zeros(parameter.shape, dtype=torch.float64, device="cpu")
        if std:
            values.normal_(0.0, std, generator=derive(seed, layer.name, name))
        write_(parameter, values)


def check_scales(layers: Mapping[str, Layer], gain: float, bias_std: float) -> tuple[float, float]:
    """Return both as floats; raise unless the weights and biases that they scale are finite in their dtypes.

    Raises:
        TypeError: an argument is not a number.
        ValueError: an argument is not finite, `gain` is 0, `bias_std` is negative, or a dtype cannot hold the result.
    """
    gain, bias_std = check_gain(gain), check_number("bias_std", bias_std, least=0)
    if gain == 0:
        raise ValueError("gain: expected a finite number other than 0, with which every weight would be 0; got 0")
    for layer in layers.values():
        check_gain(gain, torch.finfo(layer.parameter().dtype).max)
        for name in layer.biases:
            limit = torch.finfo(leaf(layer.module, name).dtype).max / FARTHEST_DRAW
            if bias_std > limit:
                raise ValueError(f"bias_std: expected at most {limit:.3g} for {layer.name!r}; got {bias_std!r}")
    return gain, bias_std
