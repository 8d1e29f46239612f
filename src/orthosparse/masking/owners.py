"""The modules that hold the tensors named in Masks, and whether masks fit there."""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from orthosparse.checks import check_mapping
from orthosparse.layers import Layer, layer_name
from orthosparse.masking.masked_tensor import masked_tensors
from orthosparse.parametrized import leaf, plain_modules
from orthosparse.registry import did_you_mean, listed

Owner = tuple[nn.Module, str]


def parameters_of(model: nn.Module) -> Iterator[tuple[str, nn.Module, str]]:
    """(name of the module, module, tensor) of every parameter under each of its names; a masked one as before."""
    for module_name, module in plain_modules(model, remove_duplicate=False):
        plain = [name for name, value in module._parameters.items() if value is not None]
        yield from ((module_name, module, tensor) for tensor in (*plain, *dict(masked_tensors(module))))


def owners_of(model: nn.Module, layers: Mapping[str, Layer] | None = None) -> dict[str, list[Owner]]:
    """By layer name, all the (module, tensor) that hold the parameter; without `layers`, of every parameter."""
    if layers is not None:
        return {name: [(layer.module, layer.tensor), *layer.tied] for name, layer in layers.items()}
    by_parameter: dict[int, list[Owner]] = {}
    by_name: dict[str, list[Owner]] = {}
    for module_name, module, tensor in parameters_of(model):
        owners = by_parameter.setdefault(id(leaf(module, tensor)), [])
        if (module, tensor) not in owners:  # a module may have several names
            owners.append((module, tensor))
        by_name[layer_name(module_name, tensor)] = owners
    return by_name


def masked_owners_of(model: nn.Module) -> dict[str, list[Owner]]:
    """By layer name in module order, the (module, tensor) that share a mask; tied ones under the first name."""
    names: dict[int, str] = {}
    found: dict[str, list[Owner]] = {}
    for module_name, module in model.named_modules():
        for tensor, masked in masked_tensors(module):
            name = names.setdefault(id(masked.holder), layer_name(module_name, tensor))
            found.setdefault(name, []).append((module, tensor))
    return found


def check_masks(masks: Mapping[str, Tensor], owners: Mapping[str, list[Owner]]) -> None:
    """Check names, types and shapes.

    Raises:
        TypeError: a mask that is not a bool tensor.
        ValueError: a name that the model has not, a wrong shape, or two masks for one parameter.
    """
    check_mapping("masks", masks, object)
    parameters: dict[int, str] = {}
    for name, mask in masks.items():
        if name not in owners:
            meant = did_you_mean(name, owners)
            raise ValueError(f"masks: expected names among {listed(owners)}; got {name!r}{meant}")
        if not isinstance(mask, Tensor) or mask.dtype is not torch.bool:
            raise TypeError(f"masks: expected a bool tensor for {name!r}; got {getattr(mask, 'dtype', type(mask))}")
        if mask.layout != torch.strided:
            raise TypeError(f"masks: expected a dense tensor for {name!r}; got {mask.layout}")
        parameter = leaf(*owners[name][0])
        if isinstance(parameter, nn.parameter.UninitializedParameter):
            raise ValueError(f"masks: {name!r} has no shape yet; run the lazy module on a batch first")
        if mask.shape != parameter.shape:
            raise ValueError(f"masks: expected shape {(*parameter.shape,)} for {name!r}; got {(*mask.shape,)}")
        if mask.is_meta and not parameter.is_meta:
            raise ValueError(f"masks: expected masks that lie in memory; that of {name!r} is on the meta device")
        if (other := parameters.setdefault(id(parameter), name)) != name:
            raise ValueError(f"masks: expected one mask for the tied {other!r} and {name!r}; got two")
