"""Masks of torch.nn.utils.prune (``weight_orig``, ``weight_mask`` and a hook): take them off a model, put them on."""

import torch
from torch import Tensor, nn
from torch.nn.utils import prune

from orthosparse.layers import layer_name
from orthosparse.mappings import Masks


def take_prune_masks(model: nn.Module) -> Masks:
    """Make the pruning of `model` permanent, and return its masks by layer name; a tied tensor has one.

    Raises:
        ValueError: there are none, or tied tensors were pruned apart; the model is unchanged.
    """
    found: dict[int, tuple[str, Tensor]] = {}
    places = []
    for module_name, module in model.named_modules():
        for original in [name for name in module._parameters if name.endswith("_orig")]:
            tensor = original.removesuffix("_orig")
            if f"{tensor}_mask" not in module._buffers:
                continue
            name, mask = layer_name(module_name, tensor), module.get_buffer(f"{tensor}_mask") != 0
            other, known = found.setdefault(id(module._parameters[original]), (name, mask))
            if not torch.equal(mask, known):
                raise ValueError(f"model: {other!r} and {name!r} hold one parameter, but were pruned apart")
            places.append((module, tensor))
    if not places:
        raise ValueError("model: expected masks of torch.nn.utils.prune; it has none")
    for module, tensor in places:
        prune.remove(module, tensor)
    return dict(found.values())


def put_prune_mask(module: nn.Module, tensor: str, mask: Tensor) -> None:
    """Prune ``module.tensor`` with `mask`."""
    prune.custom_from_mask(module, tensor, mask)
