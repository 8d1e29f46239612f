"""Replace the masks of a model, and remove them."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from orthosparse.checks import check_mapping, check_model, check_optimizer
from orthosparse.distributed import is_sharded, move_fsdp_parameter, reshard
from orthosparse.layers import layer_name, unwrapped
from orthosparse.masking.attach import check_masks, masked_layers, masked_owners_of
from orthosparse.masking.exchange import compact_modules, dense_form, uncompact
from orthosparse.masking.masked_tensor import masked_tensors, remove_mask
from orthosparse.masking.optimizer_state import move_units, reset_entries
from orthosparse.masking.transactions import undone_on_error
from orthosparse.modules.compact_module import Compact


def replace_masks(
    model: nn.Module, masks: Mapping[str, Tensor], *, optimizer: torch.optim.Optimizer | None = None
) -> None:
    """Replace masks: weights that become inactive are set to zero, and weights that become active start at zero.

    If the call raises, nothing is changed.

    Args:
        masks: as in `attach`; layers that are not named keep their masks.
        optimizer: its state (momentum) of the weights that become active or inactive is reset to that of a new weight.
            Otherwise it can keep moving inactive weights: not visibly in the model or its state dict, but in the
            parameter itself. LBFGS has no state for single weights, so nothing is reset.

    Raises:
        TypeError: a mask is not a bool tensor.
        ValueError: a name or shape is wrong, a layer has no mask, or the mask of a module that holds only active
            weights has another number of active units.

    Example:
        >>> from orthosparse import attach
        >>> model = nn.Sequential(nn.Linear(2, 2))
        >>> attach(model, {"0": torch.eye(2, dtype=torch.bool)})
        >>> replace_masks(model, {"0": ~torch.eye(2, dtype=torch.bool)})
        >>> int(model[0].weight.count_nonzero())
        0
    """
    model = unwrapped(check_model(model))
    check_optimizer(optimizer)
    check_mapping("masks", masks, object)
    compact = {layer_name(name, "weight"): module for name, module in compact_modules(model).items()}
    indices = {name: _indices(name, compact[name], mask) for name, mask in masks.items() if name in compact}
    masks = {name: mask for name, mask in masks.items() if name not in compact}
    check_masks(masks, masked_owners_of(model) | {name: [] for name in compact})
    reshard(model)
    layers = masked_layers(model)
    # Of all other modules, and in the optimizer, only values change: a snapshot of them would take a third of the time.
    changed = [
        *(compact[name] for name in indices),
        *(layers[name].holder for name in masks if layers[name].holder.lost),
    ]
    with undone_on_error(nn.ModuleList(changed)) as saved:
        for name, moved in indices.items():
            move_units(compact[name], moved, optimizer, saved)
        for name, new in masks.items():
            holder, parameter = layers[name].holder, layers[name].original
            new = new.to(holder.mask.device)
            reset_entries(parameter, new if holder.lost else new & holder.mask, optimizer, saved)
            saved.save(holder.mask)
            holder.mask.copy_(new)
            holder.lost = False


def bake(model: nn.Module, *, optimizer: torch.optim.Optimizer | None = None) -> None:
    """Remove the masks: plain modules again, with the same parameters and zeros where the masks were.

    Modules that hold only active weights become plain modules too, with new parameters. If the call raises, the model
    is unchanged.

    Args:
        optimizer: the optimizer of a model that has such modules; it continues with the new parameters and the same
            state.

    Raises:
        ValueError: another parametrization was registered after a mask, the state of the optimizer does not belong to
            single weights, or it does not hold all of these modules that are not frozen.

    Example:
        >>> from orthosparse import attach
        >>> model = nn.Sequential(nn.Linear(2, 2))
        >>> attach(model, {"0": torch.eye(2, dtype=torch.bool)})
        >>> bake(model)
        >>> print(model[0], sorted(model.state_dict()))
        Linear(in_features=2, out_features=2, bias=True) ['0.bias', '0.weight']
    """
    model = unwrapped(check_model(model))
    check_optimizer(optimizer)
    owners = masked_owners_of(model)
    for name in owners:
        if any(len(dict(masked_tensors(module))[tensor]) > 1 for module, tensor in owners[name]):
            raise ValueError(f"model: {name!r} has another parametrization after its mask; remove that first")
    reshard(model)
    with undone_on_error(model, optimizer):
        uncompact(model, dense_form, optimizer)
        for owner in [owner for tied in owners.values() for owner in tied]:
            move_fsdp_parameter(model, (remove_mask(*owner).home, owner[1]), owner)


def _indices(name: str, module: Compact, mask: Tensor) -> Tensor:
    """Return the flat indices of the units in a new mask of a module that holds only active weights."""
    if not isinstance(mask, Tensor) or mask.dtype is not torch.bool:
        raise TypeError(f"masks: expected a bool tensor for {name!r}; got {getattr(mask, 'dtype', type(mask))}")
    if tuple(mask.shape) != module.weight_shape:
        raise ValueError(f"masks: expected shape {module.weight_shape} for {name!r}; got {(*mask.shape,)}")
    if is_sharded(module.values):
        raise ValueError(f"model: expected values that are not sharded; those of {name!r} are, and cannot move")
    try:
        return module.indices_of(mask.to(module.columns.device))
    except ValueError as error:
        raise ValueError(f"masks: {name!r}: {error}") from None
