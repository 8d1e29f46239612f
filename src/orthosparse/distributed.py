"""What the ranks of a distributed run share: one seed, one set of masks, one mean gradient; alone, nothing happens.

All ranks of a group call these together; without a group, all ranks of the run.
"""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

import torch
import torch.distributed as dist
from torch import nn

from orthosparse.mappings import Masks, ScoredMasks

Group: TypeAlias = "dist.ProcessGroup | None"


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
    """Return the first rank's masks, and their scores where they have some: ranks may have looked at different data."""
    if not _is_distributed(group):
        return masks
    shared = {}
    for name, mask in masks.items():
        bits = mask.to(torch.uint8)  # not every backend carries bools
        dist.broadcast(bits, group_src=0, group=group)
        shared[name] = bits.to(torch.bool)
    if not isinstance(masks, ScoredMasks):
        return shared
    scores = {name: score.detach().clone(memory_format=torch.contiguous_format) for name, score in masks.scores.items()}
    for score in scores.values():
        dist.broadcast(score, group_src=0, group=group)
    return ScoredMasks(shared, scores)


def mean_over_ranks(tensor: torch.Tensor, group: Group = None) -> torch.Tensor:
    """Return the mean of `tensor` over the ranks."""
    if not _is_distributed(group):
        return tensor
    mean = tensor.clone()
    dist.all_reduce(mean, group=group)
    return mean / dist.get_world_size(group)


def check_same_model(model: nn.Module, layers: Mapping[str, Any], group: Group = None) -> None:
    """Raise ValueError on every rank unless all have parameters and layers of the same names, shapes and types."""
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
    """Let all ranks raise when the block raises on one of them, so that none waits for it."""
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
            raise RuntimeError(f"group: rank {rank} of it raised {failure}")


def _gathered(value: Any, group: Group) -> list[Any]:
    values: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(values, value, group=group)
    return values


def _is_distributed(group: Group) -> bool:
    return dist.is_available() and dist.is_initialized() and dist.get_world_size(group) > 1
