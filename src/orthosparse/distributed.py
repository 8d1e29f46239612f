"""torch.distributed: seeds, masks and errors that ranks share, and sharded parameters.

All ranks of a group call these functions together; without a group, all ranks of the run.
"""

import hashlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

import torch
import torch.distributed as dist
from torch import Tensor, nn

from orthosparse.aliases import Masks
from orthosparse.masks import ScoredMasks

Group: TypeAlias = "dist.ProcessGroup | None"
FsdpOwners: TypeAlias = "list[tuple[Any, list[tuple[nn.Module, str]]]]"
_AT_ONCE = 2**24  # number of entries of a mask that are inverted at once


def check_group(group: Any) -> None:
    """Raise TypeError unless `group` is None or a process group that this rank belongs to."""
    if group is not None and not (dist.is_available() and isinstance(group, dist.ProcessGroup)):
        raise TypeError(f"group: expected a process group that this rank belongs to; got {group!r}")


def broadcast_seed(seed: int, group: Group = None) -> int:
    """Return the seed of the group's first rank."""
    if not _is_distributed(group):
        return seed
    box: list[int] = [seed]
    dist.broadcast_object_list(box, group_src=0, group=group)
    return box[0]


def broadcast_masks(masks: Masks, group: Group = None) -> Masks:
    """Return the masks of the first rank, with scores if they have any; ranks may have scored different data."""
    if not _is_distributed(group):
        return masks
    shared = {name: mask.clone(memory_format=torch.contiguous_format) for name, mask in masks.items()}
    broadcast_(shared.values(), group)
    if not isinstance(masks, ScoredMasks):
        return shared
    scores = {name: score.detach().clone(memory_format=torch.contiguous_format) for name, score in masks.scores.items()}
    broadcast_(scores.values(), group)
    return ScoredMasks(shared, scores)


def mean_over_ranks(tensor: Tensor, group: Group = None) -> Tensor:
    """Return the mean of `tensor` over the ranks."""
    if not _is_distributed(group):
        return tensor
    mean = tensor.clone()
    dist.all_reduce(mean, group=group)
    return mean / dist.get_world_size(group)


def check_same_model(model: nn.Module, layers: Mapping[str, Any], group: Group = None) -> None:
    """Raise ValueError on every rank unless names, shapes and dtypes of parameters and layers are the same."""
    if not _is_distributed(group):
        return
    own = {name: f"{tuple(value.shape)} {value.dtype}" for name, value in model.named_parameters()}
    own.update({f"layer {name}": "to sparsify" for name in layers})
    digest = hashlib.sha256(repr(sorted(own.items())).encode()).hexdigest()
    if len(set(_gathered(digest, group))) == 1:
        return
    first, *others = _gathered(own, group)
    rank, other = next((rank, other) for rank, other in enumerate(others, 1) if other != first)
    name = next(name for name in (*first, *other) if first.get(name) != other.get(name))
    raise ValueError(
        f"model: expected the same one on every rank of the group; {name!r} is {first.get(name, 'missing')} on rank 0 "
        f"and {other.get(name, 'missing')} on rank {rank} (give each stage of a pipeline a group of its own, by group=)"
    )


@contextmanager
def raised_on_every_rank(group: Group = None) -> Iterator[None]:
    """Raise on all ranks if the block raises on one of them, so that no rank waits forever."""
    error: Exception | None = None
    try:
        yield
    except Exception as caught:
        if not _is_distributed(group):
            raise
        error = caught
    if not _is_distributed(group):
        return
    failures = _gathered(None if error is None else f"{type(error).__name__}: {error}", group)
    if error is not None:
        raise error
    for rank, failure in enumerate(failures):
        if failure is not None:
            raise RuntimeError(f"group: rank {rank} raised {failure}")


def _gathered(value: Any, group: Group) -> list[Any]:
    values: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(values, value, group=group)
    return values


def _is_distributed(group: Group) -> bool:
    return dist.is_available() and dist.is_initialized() and dist.get_world_size(group) > 1


def is_sharded(tensor: Tensor | None) -> bool:
    """Whether `tensor` is a DTensor (asked without importing it, which costs more than the whole library)."""
    return hasattr(tensor, "placements")


def shard_like(whole: Tensor, like: Tensor) -> Tensor:
    """Return `whole` sharded like `like`; each rank takes its own shard, without communication."""
    if not is_sharded(like) or is_sharded(whole):
        return whole
    from torch.distributed.tensor import distribute_tensor

    sharded: Any = like
    return distribute_tensor(whole, sharded.device_mesh, sharded.placements, src_data_rank=None)


def full_tensor(tensor: Tensor) -> Tensor:
    """Return the whole `tensor`, detached; a sharded one is gathered, so every rank of its mesh must call this."""
    part: Any = tensor.detach()
    return part.full_tensor() if is_sharded(tensor) else part  # type: ignore[no-any-return]


@torch.no_grad()
def write_(tensor: Tensor, whole: Tensor) -> Tensor:
    """Copy `whole`, which is the same on every rank, into `tensor`."""
    return tensor.copy_(shard_like(whole.to(tensor.dtype), tensor))


def zero_off_(tensor: Tensor, mask: Tensor) -> None:
    """Set `tensor` to zero where the whole `mask` is false."""
    fill_off_(tensor, mask, 0.0)


@torch.no_grad()
def fill_off_(tensor: Tensor, mask: Tensor, value: float) -> None:
    """Set `tensor` to `value` where the whole `mask` is false."""
    part, kept = local_parts(tensor, mask)
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
    """Reshard every FSDP2 module, so that its parameters are those that the optimizer holds."""
    for module in _fsdp_modules(model):
        module.reshard()


def is_managed_elsewhere(model: nn.Module, owner: tuple[nn.Module, str], parameter: Tensor) -> bool:
    """Whether FSDP2 shards `parameter` from a module around `model`."""
    managed = is_sharded(parameter) and getattr(owner[0], "_is_fsdp_managed_module", False)
    return managed and not any(owner in _owners(record) for record in _records(model))


def move_fsdp_parameter(model: nn.Module, old: tuple[nn.Module, str], new: tuple[nn.Module, str]) -> None:
    """Have FSDP2, where it manages the parameter of `old`, gather it into `new` from now on."""
    if not any(getattr(module, "_is_fsdp_managed_module", False) for module, _ in (old, new)):
        return  # a search of all modules for every layer would be slow
    for record in _records(model):
        _set_owners(record, [new if owner == old else owner for owner in _owners(record)])


def fsdp_owners(model: nn.Module) -> FsdpOwners:
    """Return where FSDP2 gathers each parameter that it manages in `model`."""
    return [(record, _owners(record)) for record in _records(model)]


def restore_fsdp_owners(owners: FsdpOwners) -> None:
    """Have FSDP2 gather its parameters where `fsdp_owners` found them."""
    for record, own in owners:
        _set_owners(record, own)


def broadcast_(tensors: Iterable[Tensor], group: Group = None) -> None:
    """Overwrite every tensor with that of the group's first rank."""
    for tensor in tensors:
        value = tensor.detach()
        # Not every backend can send bool; all can send its bytes.
        dist.broadcast(value.view(torch.uint8) if value.dtype is torch.bool else value, group_src=0, group=group)


def local_parts(tensor: Tensor, *others: Tensor) -> list[Tensor]:
    """Return the shard of `tensor` on this rank, and those of other tensors of its shape, which may be whole."""
    return [_part(tensor), *(_part(shard_like(other, tensor)) for other in others)]


def _part(tensor: Tensor) -> Tensor:
    return tensor.to_local() if is_sharded(tensor) else tensor  # type: ignore[attr-defined]


def _fsdp_modules(model: nn.Module) -> Iterator[Any]:
    if "torch.distributed.fsdp" not in sys.modules:
        return
    from torch.distributed.fsdp import FSDPModule

    yield from (module for module in model.modules() if isinstance(module, FSDPModule))


def _records(model: nn.Module) -> Iterator[Any]:
    """Yield FSDP2's record of the modules that hold a parameter, for each parameter that it manages in `model`."""
    for module in _fsdp_modules(model):
        state = module._get_fsdp_state()
        groups = getattr(state, "_fsdp_param_groups", None)  # older torch has one group, under another name
        for group in [state._fsdp_param_group] if groups is None else groups:
            yield from (parameter._module_info for parameter in (group.fsdp_params if group else ()))


def _owners(record: Any) -> list[tuple[nn.Module, str]]:
    shared = zip(record.shared_modules, record.shared_param_names, strict=True)
    return [(record.module, record.param_name), *shared]


def _set_owners(record: Any, owners: list[tuple[nn.Module, str]]) -> None:
    record.module, record.param_name = owners[0]
    record.shared_modules[:] = [module for module, _ in owners[1:]]
    record.shared_param_names[:] = [name for _, name in owners[1:]]
