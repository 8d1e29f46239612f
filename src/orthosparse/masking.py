"""Masks on a model: attach, read, replace and bake them, load them, keep them equal on all processes."""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from orthosparse._masking_memory import forget
from orthosparse._masking_places import check_masks, masked_places_of, parameters_of, places_of
from orthosparse._masking_tensor import Mask, MaskedTensor, masked_tensors, put_mask, remove_mask, why_not
from orthosparse.layers import Layer, layer_name, leaf, unwrapped
from orthosparse.mappings import Masks
from orthosparse.sharding import (
    broadcast_,
    compute_device,
    hand_over,
    is_managed_elsewhere,
    is_sharded,
    reshard,
)


def attach(
    model: nn.Module,
    masks: Mapping[str, Tensor],
    *,
    layers: Mapping[str, Layer] | None = None,
    optimizer: torch.optim.Optimizer | None = None,
) -> None:
    """Put masks on tensors of `model`: weights off the mask become zero and stay zero under any optimizer.

    Parameters keep their identity, so that the optimizer may be built before or after. All the places that hold
    one parameter share one mask.

    Args:
        masks: bool, by layer name, in the shape of the (whole) tensor; tensors that are not named stay dense.
        layers: where the names lead; by default every parameter of the model can be named.
        optimizer: one that has trained the model already; it forgets what it holds of the weights that leave.

    Raises:
        TypeError: a mask that is not a bool tensor; the model is unchanged, as below.
        ValueError: a wrong name or shape, or a tensor that cannot get a mask.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 2))
        >>> attach(model, {"0": torch.eye(2, dtype=torch.bool)})
        >>> sorted(model.state_dict())
        ['0.bias', '0.weight', '0.weight_mask']
    """
    model = unwrapped(model)
    places = places_of(model, layers)
    check_masks(masks, places)
    reshard(model)
    for name in masks:
        for place in places[name]:
            if reason := why_not(*place):
                raise ValueError(f"masks: {name!r} {reason}")
            if is_managed_elsewhere(model, place, leaf(*place)):
                raise ValueError(
                    f"model: fully_shard was called around it for {name!r}; pass the module it was called on"
                )
    for name, mask in masks.items():
        parameter = leaf(*places[name][0])
        holder = Mask(_laid_out(mask, parameter))
        forget(parameter, holder.mask, optimizer)
        for place in places[name]:
            hand_over(model, place, (put_mask(*place, holder), "original"))


def masked_layers(model: nn.Module) -> dict[str, MaskedTensor]:
    """Return the parametrizations that hold masks, by layer name in module order; a tied tensor has one.

    Of each, ``original`` is the parameter and ``holder.mask`` the mask itself.
    """
    return {name: dict(masked_tensors(m))[t] for name, ((m, t), *_) in masked_places_of(unwrapped(model)).items()}


def masks_of(model: nn.Module) -> Masks:
    """Return a copy of the masks on `model`, by layer name in module order; a tied tensor has one."""
    return {name: masked.holder.mask.clone() for name, masked in masked_layers(model).items()}


def is_sparsified(model: nn.Module) -> bool:
    """Whether any tensor of `model` has a mask."""
    return any(isinstance(module, Mask) for module in model.modules())


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
        ValueError: a wrong name or shape, or a layer that has no mask.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 2))
        >>> attach(model, {"0": torch.eye(2, dtype=torch.bool)})
        >>> replace_masks(model, {"0": ~torch.eye(2, dtype=torch.bool)})
        >>> int(model[0].weight.count_nonzero())
        0
    """
    model = unwrapped(model)
    check_masks(masks, masked_places_of(model))
    reshard(model)
    layers = masked_layers(model)
    for name, new in masks.items():
        holder, parameter = layers[name].holder, layers[name].original
        new = new.to(holder.mask.device)
        forget(parameter, new if holder.lost else new & holder.mask, optimizer)
        holder.mask.copy_(new)
        holder.lost = False


def bake(model: nn.Module) -> None:
    """Take the masks off: plain modules again, the same parameters with the zeros in them.

    Raises:
        ValueError: another parametrization was registered after a mask; the model is unchanged.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 2))
        >>> attach(model, {"0": torch.eye(2, dtype=torch.bool)})
        >>> bake(model)
        >>> print(model[0], is_sparsified(model))
        Linear(in_features=2, out_features=2, bias=True) False
    """
    model = unwrapped(model)
    places = masked_places_of(model)
    for name in places:
        if any(len(dict(masked_tensors(module))[tensor]) > 1 for module, tensor in places[name]):
            raise ValueError(f"model: {name!r} has another parametrization after its mask; remove that first")
    reshard(model)
    for place in [place for found in places.values() for place in found]:
        hand_over(model, (remove_mask(*place), "original"), place)


def load_sparse(model: nn.Module, state: Mapping[str, Any], *, strict: bool = True, assign: bool = False) -> Any:
    """Load a state dict that holds masks, and put on `model` those it lacks.

    The prefixes that DistributedDataParallel and torch.compile put before every key are dropped.

    Returns:
        the missing and unexpected keys, as ``load_state_dict`` does.

    Raises:
        TypeError, ValueError: a mask that does not fit the model, which is unchanged.
        RuntimeError: `state` does not fit otherwise, as ``load_state_dict`` says it; no mask is put on.
    """
    model = unwrapped(model)
    rest, places = _without_wrappers(state), places_of(model)
    found: dict[int, tuple[str, Tensor]] = {}  # by parameter: tied tensors bring their one mask several times
    for module_name, module, tensor in parameters_of(model):
        key = f"{module_name}.{tensor}_mask".lstrip(".")
        if key in rest and not hasattr(module, f"{tensor}_mask"):
            mask = rest.pop(key)
            found.setdefault(id(leaf(module, tensor)), (layer_name(module_name, tensor), mask))
    masks = dict(found.values())
    check_masks(masks, places)
    result = model.load_state_dict(rest, strict=strict, assign=assign)
    attach(model, masks)
    return result


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
        tensor.settle()


def _laid_out(mask: Tensor, parameter: Tensor) -> Tensor:
    """A copy of `mask` where and how (channels last) the parameter is used."""
    if is_sharded(parameter):
        return mask.to(compute_device(parameter), copy=True)
    return torch.empty_like(parameter, dtype=torch.bool, requires_grad=False).copy_(mask)


def _without_wrappers(state: Mapping[str, Any]) -> OrderedDict[str, Any]:
    """A copy of the state dict without the prefixes that wrappers put before every key."""
    plain: OrderedDict[str, Any] = OrderedDict(state)
    for prefix in ("module.", "_orig_mod.", "module."):
        if plain and all(key.startswith(prefix) for key in plain):
            plain = OrderedDict((key.removeprefix(prefix), value) for key, value in plain.items())
    if len(plain) and next(iter(plain)) in state and hasattr(state, "_metadata"):
        plain._metadata = state._metadata  # type: ignore[attr-defined]
    return plain
