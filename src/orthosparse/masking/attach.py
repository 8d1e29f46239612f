"""Masks on a model: attach, read, replace and bake them, and keep them equal on all processes."""

from collections.abc import Iterable, Mapping

import torch
import torch.distributed as dist
from torch import Tensor, nn

from orthosparse.checks import check_flag, check_mapping, check_model, check_optimizer
from orthosparse.distributed import (
    broadcast_,
    compute_device,
    is_managed_elsewhere,
    is_sharded,
    move_fsdp_parameter,
    reshard,
)
from orthosparse.layers import Layer, layer_name, unwrapped
from orthosparse.mappings import Masks
from orthosparse.masking.exchange import compact_modules, dense_form, uncompact
from orthosparse.masking.masked_tensor import (
    Mask,
    MaskedTensor,
    masked_tensors,
    register_mask,
    remove_mask,
    why_unmaskable,
)
from orthosparse.masking.optimizer_state import move_units, reset_entries
from orthosparse.masking.owners import Owner, check_masks, masked_owners_of, owners_of
from orthosparse.modules.compact_module import Compact
from orthosparse.parametrized import leaf


def attach(
    model: nn.Module,
    masks: Mapping[str, Tensor],
    *,
    layers: Mapping[str, Layer] | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    filled: bool = False,
) -> None:
    """Put masks on tensors of `model`: weights off the mask become zero and stay zero under any optimizer.

    Parameters keep their identity, so that the optimizer may be built before or after. All modules that hold one
    parameter share one mask.

    Args:
        masks: bool, by layer name, in the shape of the (whole) tensor; tensors that are not named stay dense.
        layers: those that `find_layers` found, where only they may be named; by default every parameter can be.
        optimizer: one that has trained the model already; it forgets what it holds of the weights that leave.
        filled: a scheme has made the masks for these weights: they are zero off them already, and the masks are given
            away, not copied.

    Raises:
        TypeError: a mask that is not a bool tensor; the model is unchanged, as below.
        ValueError: a wrong name or shape, or a tensor that cannot get a mask.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 2))
        >>> attach(model, {"0": torch.eye(2, dtype=torch.bool)})
        >>> sorted(model.state_dict())
        ['0.bias', '0.weight', '0.weight_mask']
    """
    model = unwrapped(check_model(model))
    check_optimizer(optimizer)
    check_flag(filled, "filled")
    if layers is not None:
        check_mapping("layers", layers, Layer)
    owners = owners_of(model, layers)
    check_masks(masks, owners)
    reshard(model)
    check_attachable(model, masks, owners)
    for name, mask in masks.items():
        parameter = leaf(*owners[name][0])
        holder = Mask(_laid_out(mask, parameter, copy=not filled))
        if not filled:
            reset_entries(parameter, holder.mask, optimizer)
        for owner in owners[name]:
            move_fsdp_parameter(model, owner, (register_mask(*owner, holder).home, owner[1]))


def check_attachable(model: nn.Module, names: Iterable[str], owners: Mapping[str, list[Owner]]) -> None:
    """Raise ValueError if the tensor of a name cannot get a mask."""
    for name in names:
        for owner in owners[name]:
            if reason := why_unmaskable(*owner):
                raise ValueError(f"masks: {name!r} {reason}")
            if is_managed_elsewhere(model, owner, leaf(*owner)):
                raise ValueError(
                    f"model: fully_shard was called around it for {name!r}; pass the module it was called on"
                )


def masked_layers(model: nn.Module) -> dict[str, MaskedTensor]:
    """Return the parametrizations that hold masks, by layer name in module order; a tied tensor has one.

    Of each, ``original`` is the parameter and ``holder.mask`` the mask itself.
    """
    return {
        name: dict(masked_tensors(m))[t]
        for name, ((m, t), *_) in masked_owners_of(unwrapped(check_model(model))).items()
    }


def masks_of(model: nn.Module) -> Masks:
    """Return a copy of the masks on `model`, by layer name in module order; a tied tensor has one.

    Of modules that hold only active weights, it says which those are.
    """
    masks: dict[int, tuple[str, Tensor]] = {}  # by what holds one
    for name, module in unwrapped(check_model(model)).named_modules():
        if isinstance(module, Compact):
            masks[id(module)] = layer_name(name, "weight"), module.weight_mask
        for tensor, masked in masked_tensors(module):
            masks.setdefault(id(masked.holder), (layer_name(name, tensor), masked.holder.mask.clone()))
    return dict(masks.values())


def is_sparsified(model: nn.Module) -> bool:
    """Whether any tensor of `model` has a mask, or any of its modules holds only active weights."""
    return any(isinstance(module, Mask | Compact) for module in model.modules())


def replace_masks(
    model: nn.Module, masks: Mapping[str, Tensor], *, optimizer: torch.optim.Optimizer | None = None
) -> None:
    """Exchange masks: weights that leave become zero, weights that enter start at zero.

    Args:
        masks: as for `attach`; layers that are not named keep theirs.
        optimizer: forgets what it holds (momentum) of the weights that leave or enter, as if they were new. Otherwise
            that can still move a weight that has left: nowhere seen in the model or its state dict, but in the
            parameter itself. LBFGS, which holds nothing weight by weight, forgets nothing.

    Raises:
        TypeError: a mask that is not a bool tensor; nothing is changed, as below.
        ValueError: a wrong name or shape, a layer that has no mask, or another number of units for a module that holds
            only active weights.

    Example:
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
    places = {name: _places(name, compact[name], mask) for name, mask in masks.items() if name in compact}
    masks = {name: mask for name, mask in masks.items() if name not in compact}
    check_masks(masks, masked_owners_of(model) | {name: [] for name in compact})
    reshard(model)
    for name, found in places.items():
        move_units(compact[name].values, compact[name].move(found), optimizer)
    layers = masked_layers(model)
    for name, new in masks.items():
        holder, parameter = layers[name].holder, layers[name].original
        new = new.to(holder.mask.device)
        reset_entries(parameter, new if holder.lost else new & holder.mask, optimizer)
        holder.mask.copy_(new)
        holder.lost = False


def bake(model: nn.Module, *, optimizer: torch.optim.Optimizer | None = None) -> None:
    """Take the masks off: plain modules again, the same parameters with the zeros in them.

    Modules that hold only active weights become plain ones too, with new parameters.

    Args:
        optimizer: of a model that has such modules: it goes on with the new parameters, from the same state.

    Raises:
        ValueError: another parametrization was registered after a mask, or an optimizer whose state does not belong to
            single weights; the model is unchanged.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 2))
        >>> attach(model, {"0": torch.eye(2, dtype=torch.bool)})
        >>> bake(model)
        >>> print(model[0], is_sparsified(model))
        Linear(in_features=2, out_features=2, bias=True) False
    """
    model = unwrapped(check_model(model))
    owners = masked_owners_of(model)
    for name in owners:
        if any(len(dict(masked_tensors(module))[tensor]) > 1 for module, tensor in owners[name]):
            raise ValueError(f"model: {name!r} has another parametrization after its mask; remove that first")
    uncompact(model, dense_form, optimizer)
    reshard(model)
    for owner in [owner for found in owners.values() for owner in found]:
        move_fsdp_parameter(model, (remove_mask(*owner).home, owner[1]), owner)


def synchronize(model: nn.Module, group: "dist.ProcessGroup | None" = None) -> None:
    """Give every process the masks and parameters of the group's first one; all of them must call.

    Does nothing without an initialised process group. A sharded parameter exists once: its parts stay, and become
    zero off the mask.
    """
    if not (dist.is_available() and dist.is_initialized()):
        return
    model = unwrapped(model)
    reshard(model)
    masked = masked_layers(model).values()
    broadcast_((tensor.holder.mask for tensor in masked), group)
    broadcast_((parameter for parameter in model.parameters() if not is_sharded(parameter)), group)
    for tensor in masked:
        tensor.zero_off_mask()


def _places(name: str, module: Compact, mask: Tensor) -> Tensor:
    """The places of the units in a new mask of a module that holds only active weights."""
    if not isinstance(mask, Tensor) or mask.dtype is not torch.bool:
        raise TypeError(f"masks: expected a bool tensor for {name!r}; got {getattr(mask, 'dtype', type(mask))}")
    if tuple(mask.shape) != module.weight_shape:
        raise ValueError(f"masks: expected shape {module.weight_shape} for {name!r}; got {(*mask.shape,)}")
    if is_sharded(module.values):
        raise ValueError(f"model: expected values that are not sharded; those of {name!r} are, and cannot move")
    try:
        return module.places_in(mask.to(module.columns.device))
    except ValueError as error:
        raise ValueError(f"masks: {name!r}: {error}") from None


def _laid_out(mask: Tensor, parameter: Tensor, *, copy: bool) -> Tensor:
    """A copy of `mask` where and how (channels last) the parameter is used; itself if it need not be one."""
    if is_sharded(parameter):
        return mask.to(compute_device(parameter), copy=copy)
    if not copy and mask.device == parameter.device and mask.stride() == parameter.stride():
        return mask
    return torch.empty_like(parameter, dtype=torch.bool, requires_grad=False).copy_(mask)
