"""What the ranks of a distributed run share: one seed, one set of masks, one mean gradient; alone, nothing happens."""

import torch
import torch.distributed as dist

from orthosparse.mappings import Masks, ScoredMasks


def broadcast_seed(seed: int) -> int:
    """Return rank 0's seed."""
    if not _is_distributed():
        return seed
    box: list[int] = [seed]
    dist.broadcast_object_list(box, src=0)
    return box[0]


def broadcast_masks(masks: Masks) -> Masks:
    """Return rank 0's masks, with their scores where they have some: ranks may have looked at different data."""
    if not _is_distributed():
        return masks
    shared = {}
    for name, mask in masks.items():
        bits = mask.to(torch.uint8)  # not every backend carries bools
        dist.broadcast(bits, src=0)
        shared[name] = bits.to(torch.bool)
    if not isinstance(masks, ScoredMasks):
        return shared
    scores = {name: score.detach().clone(memory_format=torch.contiguous_format) for name, score in masks.scores.items()}
    for score in scores.values():
        dist.broadcast(score, src=0)
    return ScoredMasks(shared, scores)


def mean_over_ranks(tensor: torch.Tensor) -> torch.Tensor:
    """Return the mean of `tensor` over the ranks."""
    if not _is_distributed():
        return tensor
    mean = tensor.clone()
    dist.all_reduce(mean)
    return mean / dist.get_world_size()


def _is_distributed() -> bool:
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
