"""Masks from and to torch.nn.utils.prune, which keeps ``weight_orig``, ``weight_mask`` and a hook."""

import torch
from torch import Tensor, nn
from torch.nn.utils import prune

from orthosparse.checks import check_model
from orthosparse.layers import layer_name, unwrapped
from orthosparse.mappings import Masks
from orthosparse.masking.attach import attach, masks_of, owners_of
from orthosparse.masking.masked_tensor import why_unnameable
from orthosparse.masking.replace import bake


def import_prune_masks(model: nn.Module) -> Masks:
    """Turn the masks that torch.nn.utils.prune put on `model` into masks of this library, and return them.

    Raises:
        ValueError: there are none, tied tensors were pruned apart, or a tensor has a name that torch cannot
            parametrize; the model is unchanged.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 2))
        >>> _ = prune.l1_unstructured(model[0], "weight", amount=3)
        >>> int(import_prune_masks(model)["0"].sum())
        1
    """
    model = unwrapped(check_model(model))
    found: dict[int, tuple[str, Tensor]] = {}
    pruned = []
    for module_name, module in model.named_modules():
        for original in [name for name in module._parameters if name.endswith("_orig")]:
            tensor = original.removesuffix("_orig")
            if f"{tensor}_mask" not in module._buffers:
                continue
            name, mask = layer_name(module_name, tensor), module.get_buffer(f"{tensor}_mask") != 0
            if reason := why_unnameable(tensor):
                raise ValueError(f"model: {name!r} {reason}")
            other, known = found.setdefault(id(module._parameters[original]), (name, mask))
            if not torch.equal(mask, known):
                raise ValueError(f"model: {other!r} and {name!r} hold one parameter, but were pruned apart")
            pruned.append((module, tensor))
    if not pruned:
        raise ValueError("model: expected masks of torch.nn.utils.prune; it has none")
    for module, tensor in pruned:
        prune.remove(module, tensor)
    masks = dict(found.values())
    attach(model, masks)
    return masks


def export_prune_masks(model: nn.Module) -> None:
    """Turn the masks on `model` into masks of torch.nn.utils.prune.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 2))
        >>> attach(model, {"0": torch.eye(2, dtype=torch.bool)})
        >>> export_prune_masks(model)
        >>> prune.is_pruned(model), sorted(model.state_dict())
        (True, ['0.bias', '0.weight_mask', '0.weight_orig'])
    """
    masks = masks_of(model)
    bake(model)
    owners = owners_of(unwrapped(model))  # modules of active weights have become others
    for name, mask in masks.items():
        for module, tensor in owners[name]:
            prune.custom_from_mask(module, tensor, mask)
