"""Masks on a model: which tensors can have one, attach them, keep them equal on all processes, and read them."""

from collections.abc import Iterable, Iterator, Mapping

import torch
import torch.distributed as dist
from torch import Tensor, nn

from orthosparse.aliases import Masks
from orthosparse.checks import check_autograd, check_flag, check_mapping, check_model, check_optimizer
from orthosparse.distributed import (
    Group,
    broadcast_,
    compute_device,
    is_managed_elsewhere,
    is_sharded,
    move_fsdp_parameter,
    reshard,
)
from orthosparse.layers import Layer, layer_name, leaf, plain_modules, unwrapped
from orthosparse.masking.masked_tensor import Mask, MaskedTensor, masked_tensors, register_mask, why_unmaskable
from orthosparse.masking.optimizer_state import reset_entries
from orthosparse.masking.transactions import undone_on_error
from orthosparse.modules.compact_module import Compact
from orthosparse.registry import did_you_mean, listed

Owner = tuple[nn.Module, str]


def attach(
    model: nn.Module,
    masks: Mapping[str, Tensor],
    *,
    layers: Mapping[str, Layer] | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    filled: bool = False,
) -> None:
    """Attach masks to tensors of `model`: weights outside the masks become zero and stay zero under any optimizer.

    Parameters stay the same objects, so you can build the optimizer before or after. Modules that share a parameter
    share its mask. If the call raises, or is interrupted, the model is unchanged: until it returns, it holds a copy of
    the values that it overwrites.

    Args:
        masks: bool tensors by layer name, each in the shape of the whole (not sharded) tensor. Tensors that are not
            named stay dense.
        layers: the result of `find_layers`, if only these layers may be named; by default any parameter may.
        optimizer: the optimizer that has trained the model; its state of the removed weights is reset.
        filled: whether the weights are zero outside the masks already, as a scheme leaves them. The masks are then used
            themselves, not copied.

    Raises:
        TypeError: a mask is not a bool tensor.
        ValueError: a name or shape is wrong, or a tensor cannot have a mask.

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
    with undone_on_error(model, optimizer) as saved:
        for name, mask in masks.items():
            parameter = leaf(*owners[name][0])
            holder = Mask(_laid_out(mask, parameter, copy=not filled))
            if not filled:
                reset_entries(parameter, holder.mask, optimizer, saved)
            for owner in owners[name]:
                move_fsdp_parameter(model, owner, (register_mask(*owner, holder).home, owner[1]))


def check_attachable(model: nn.Module, names: Iterable[str], owners: Mapping[str, list[Owner]]) -> None:
    """Raise ValueError if the tensor of a name cannot get a mask."""
    check_autograd()
    _check_owners({name: owners[name] for name in names}, "masks")
    for name in names:
        for owner in owners[name]:
            if is_managed_elsewhere(model, owner, leaf(*owner)):
                raise ValueError(
                    f"model: fully_shard was called around it for {name!r}; pass the module it was called on"
                )


def check_maskable(model: nn.Module, layers: Mapping[str, Layer]) -> None:
    """Raise ValueError if a layer cannot get a mask because of what its modules are, before any mask is made."""
    _check_owners(owners_of(model, layers), "model")
    homes: dict[int, str] = {}
    for name, layer in layers.items():
        parameter = layer.parameter()
        if type(parameter.data) is Tensor and (other := homes.setdefault(parameter.data_ptr(), name)) != name:
            raise ValueError(
                f"model: expected weights in memory of their own; {name!r} lies in that of {other!r}, under another "
                "mask: let both modules hold the same parameter, or exclude one of them"
            )


def _check_owners(owners: Mapping[str, list[Owner]], argument: str) -> None:
    for name, tied in owners.items():
        for owner in tied:
            if reason := why_unmaskable(*owner):
                raise ValueError(f"{argument}: {name!r} {reason}")


def _laid_out(mask: Tensor, parameter: Tensor, *, copy: bool) -> Tensor:
    """Return `mask` on the device and in the memory format of the parameter; a copy only if needed or asked for."""
    if is_sharded(parameter):
        return mask.to(compute_device(parameter), copy=copy)
    if not copy and mask.device == parameter.device and mask.stride() == parameter.stride():
        return mask
    return torch.empty_like(parameter, dtype=torch.bool, requires_grad=False).copy_(mask)


def synchronize(model: nn.Module, group: Group = None) -> None:
    """Broadcast the masks and parameters of the group's first process to all others; all of them must call.

    Does nothing without an initialized process group. Sharded parameters are not sent: each shard stays, and becomes
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


def masked_layers(model: nn.Module) -> dict[str, MaskedTensor]:
    """Return the parametrizations that hold masks, by layer name in module order; a tied tensor has one.

    Of each, ``original`` is the parameter and ``holder.mask`` the mask itself.
    """
    return {
        name: dict(masked_tensors(m))[t]
        for name, ((m, t), *_) in masked_owners_of(unwrapped(check_model(model))).items()
    }


def masks_of(model: nn.Module) -> Masks:
    """Return a copy of the masks of `model`, by layer name in module order; tied tensors have one mask.

    For modules that hold only active weights, the mask says which weights these are.
    """
    masks: dict[int, tuple[str, Tensor]] = {}  # by the id of the module that holds one
    for name, module in unwrapped(check_model(model)).named_modules():
        if isinstance(module, Compact):
            masks[id(module)] = layer_name(name, "weight"), module.weight_mask
        for tensor, masked in masked_tensors(module):
            masks.setdefault(id(masked.holder), (layer_name(name, tensor), masked.holder.mask.clone()))
    return dict(masks.values())


def is_sparsified(model: nn.Module) -> bool:
    """Whether any tensor of `model` has a mask, or any of its modules holds only active weights."""
    return any(isinstance(module, Mask | Compact) for module in model.modules())


def parameters_of(model: nn.Module) -> Iterator[tuple[str, nn.Module, str]]:
    """Yield (name of the module, module, tensor) for each name of each parameter, masked ones under their own names."""
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
            layer = name.removesuffix(".weight")  # a parameter's name, where a layer's is expected
            meant = f"; did you mean {layer!r}?" if layer in owners else did_you_mean(name, owners)
            raise ValueError(f"masks: expected names among {listed(owners)}; got {name!r}{meant}")
        if not isinstance(mask, Tensor) or mask.dtype is not torch.bool:
            got = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
            raise TypeError(f"masks: expected a bool tensor for {name!r}; got {got}")
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
