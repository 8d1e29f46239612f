"""Parameters that lie on several processes: read, write, mask and broadcast them as if they were whole."""

import sys
from collections.abc import Iterable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

_AT_ONCE = 2**24  # entries of a mask that are inverted at once


def is_sharded(tensor: Tensor | None) -> bool:
    """Whether `tensor` is a DTensor (asked without importing it, which costs more than the whole library)."""
    return hasattr(tensor, "placements")


def shard_like(whole: Tensor, like: Tensor) -> Tensor:
    """Return `whole` laid out as `like` is, each process taking its own part; nothing is sent."""
    if not is_sharded(like) or is_sharded(whole):
        return whole
    from torch.distributed.tensor import distribute_tensor

    place: Any = like
    return distribute_tensor(whole, place.device_mesh, place.placements, src_data_rank=None)


def full_tensor(tensor: Tensor) -> Tensor:
    """Return the whole of `tensor`, detached; a sharded one is gathered, so every process of its mesh must call."""
    part: Any = tensor.detach()
    return part.full_tensor() if is_sharded(tensor) else part  # type: ignore[no-any-return]


@torch.no_grad()
def write_(tensor: Tensor, whole: Tensor) -> Tensor:
    """Copy `whole`, the same on every process, into `tensor`."""
    return tensor.copy_(shard_like(whole.to(tensor.dtype), tensor))


def zero_off_(tensor: Tensor, mask: Tensor) -> None:
    """Set `tensor` to zero where the whole `mask` is false."""
    fill_off_(tensor, mask, 0.0)


@torch.no_grad()
def fill_off_(tensor: Tensor, mask: Tensor, value: float) -> None:
    """Set `tensor` to `value` where the whole `mask` is false."""
    part, kept = _part(tensor), _part(shard_like(mask, tensor))
    # .data: the values that a backward pass may still need do not change, so neither does their version.
    values, kept = part.data, kept.to(part.device)
    rows = max(1, _AT_ONCE // max(1, kept[:1].numel())) if kept.dim() else 1
    for some, active in zip(values.split(rows), kept.split(rows), strict=True) if kept.dim() else [(values, kept)]:
        some.masked_fill_(~active, value)


def compute_device(tensor: Tensor) -> torch.device:
    """Return the device on which `tensor` is used: the mesh's when sharded (its parts may be offloaded)."""
    if not is_sharded(tensor) or tensor.is_meta:
        return tensor.device
    kind = tensor.device_mesh.device_type  # type: ignore[attr-defined]
    return tensor.device if tensor.device.type == kind else torch.device(kind, torch.accelerator.current_device_index())


def reshard(model: nn.Module) -> None:
    """Give every FSDP2 module its shards back: those are the parameters the optimizer sees."""
    for module in _fsdp_modules(model):
        module.reshard()


def is_managed_elsewhere(model: nn.Module, place: tuple[nn.Module, str], parameter: Tensor) -> bool:
    """Whether FSDP2 shards `parameter` from a module around `model`."""
    managed = is_sharded(parameter) and getattr(place[0], "_is_fsdp_managed_module", False)
    return managed and not any(place in _places(record) for record in _records(model))


def move_fsdp_parameter(model: nn.Module, old: tuple[nn.Module, str], new: tuple[nn.Module, str]) -> None:
    """Have FSDP2, where it manages the parameter at `old`, gather it into `new` from now on."""
    if not any(getattr(module, "_is_fsdp_managed_module", False) for module, _ in (old, new)):
        return  # without a look at every module of the model, for every layer
    for record in _records(model):
        places = [new if place == old else place for place in _places(record)]
        record.module, record.param_name = places[0]
        record.shared_modules[:] = [module for module, _ in places[1:]]
        record.shared_param_names[:] = [name for _, name in places[1:]]


def broadcast_(tensors: Iterable[Tensor], group: "dist.ProcessGroup | None" = None) -> None:
    """Overwrite every tensor with that of the group's first process."""
    for tensor in tensors:
        value = tensor.detach()
        # bool is not a type that every backend sends; its bytes are.
        dist.broadcast(value.view(torch.uint8) if value.dtype is torch.bool else value, group_src=0, group=group)


def _part(tensor: Tensor) -> Tensor:
    return tensor.to_local() if is_sharded(tensor) else tensor  # type: ignore[attr-defined]


def _fsdp_modules(model: nn.Module) -> Iterator[Any]:
    if "torch.distributed.fsdp" not in sys.modules:
        return
    from torch.distributed.fsdp import FSDPModule

    yield from (module for module in model.modules() if isinstance(module, FSDPModule))


def _records(model: nn.Module) -> Iterator[Any]:
    """For each parameter that FSDP2 manages from a module of `model`: its record of the places that hold it."""
    for module in _fsdp_modules(model):
        state = module._get_fsdp_state()
        groups = getattr(state, "_fsdp_param_groups", None)  # older torch has one group, under another name
        for group in [state._fsdp_param_group] if groups is None else groups:
            yield from (parameter._module_info for parameter in (group.fsdp_params if group else ()))


def _places(record: Any) -> list[tuple[nn.Module, str]]:
    shared = zip(record.shared_modules, record.shared_param_names, strict=True)
    return [(record.module, record.param_name), *shared]
