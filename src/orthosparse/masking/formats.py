"""Masks in torch's formats: those of torch.nn.utils.prune, and semi-structured tensors for a GPU."""

import warnings

import torch
from torch import Tensor, nn
from torch.nn.utils import prune

from orthosparse.aliases import Masks
from orthosparse.checks import check_autograd, check_model
from orthosparse.layers import layer_name, unwrapped
from orthosparse.masking.attach import attach, masked_owners_of, masks_of, owners_of
from orthosparse.masking.masked_tensor import masked_tensors, why_unnameable
from orthosparse.masking.replace import bake
from orthosparse.masking.transactions import undone_on_error
from orthosparse.structures import TWO_OF_FOUR, structure_of


def import_prune_masks(model: nn.Module) -> Masks:
    """Convert the masks of torch.nn.utils.prune on `model` into masks of this library, and return them.

    If the call raises, the model is unchanged.

    Raises:
        ValueError: the model has no such masks, tied tensors have different masks, or a tensor has a name that torch
            cannot parametrize.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 2))
        >>> _ = prune.l1_unstructured(model[0], "weight", amount=3)
        >>> int(import_prune_masks(model)["0"].sum())
        1
    """
    model = unwrapped(check_model(model))
    check_autograd()
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
    masks = dict(found.values())
    with undone_on_error(model) as saved:
        for module, tensor in pruned:
            saved.save_data(module.get_parameter(f"{tensor}_orig"))
            prune.remove(module, tensor)  # which gives the parameter other data
        attach(model, masks)
    return masks


def export_prune_masks(model: nn.Module) -> None:
    """Convert the masks on `model` into masks of torch.nn.utils.prune.

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


def to_semi_structured(model: nn.Module) -> list[str]:
    """Bake the masks, give linear layers with 2:4 masks semi-structured weights, and return the names of these layers.

    The weights are tensors of ``torch.sparse.to_sparse_semi_structured``: half the size, multiplied by the 2:4 units of
    the GPU, and not trainable. All other masked layers (1 x 1 convolutions, tied weights, other structures) become
    dense layers with zeros. If the call raises, the model is unchanged.

    Raises:
        ValueError: no linear layer has a 2:4 mask, or torch does not support such a tensor for a layer (device, dtype
            or size; the message names the layer).

    Example:
        >>> import orthosparse
        >>> model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
        >>> _ = orthosparse.sparsify(model, 0.5, structure="2:4")
        >>> if torch.cuda.is_available():
        ...     names = to_semi_structured(model.half().cuda())
    """
    model = unwrapped(check_model(model))
    converted = {name: (module, _converted(name, weight)) for name, module, weight in _linear_layers(model)}
    if not converted:
        raise ValueError("model: expected a linear layer with a mask of two of any four (structure '2:4'); found none")
    bake(model)
    for module, weight in converted.values():
        module.weight = nn.Parameter(weight, requires_grad=False)
    return list(converted)


def _linear_layers(model: nn.Module) -> list[tuple[str, nn.Linear, Tensor]]:
    """The name, module and weight of each linear layer that has a 2:4 mask to itself."""
    found = []
    for name, ((module, tensor), *tied) in masked_owners_of(model).items():
        masked = dict(masked_tensors(module))[tensor]
        if isinstance(module, nn.Linear) and not tied and structure_of(masked.holder.mask) == TWO_OF_FOUR:
            found.append((name, module, masked().detach()))
    return found


def semi_structured(weight: Tensor) -> Tensor:
    """Return a 2:4 matrix as torch's semi-structured tensor; torch says each time that those are a prototype."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*SparseSemiStructuredTensor.*prototype", category=UserWarning)
        return torch.sparse.to_sparse_semi_structured(weight.contiguous())


def _converted(name: str, weight: Tensor) -> Tensor:
    try:
        return semi_structured(weight)
    except RuntimeError as error:
        raise ValueError(f"model: torch has no semi-structured tensor for {name!r}: {error}") from error
