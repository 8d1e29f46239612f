"""Arithmetic of masks: draw at random, take the largest scores, resize, read densities, compare."""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import torch

from orthosparse.aliases import Counts, Densities, Masks, Scores
from orthosparse.checks import check_finite, check_mapping
from orthosparse.counts import in_units
from orthosparse.structures import grid_of, means_of, tiled

_REJECTION_IS_CHEAPER = 0.25  # fraction of candidates above which drawing any index beats listing the candidates


class ScoredMasks(dict[str, torch.Tensor]):
    """Masks by layer name, with the scores that chose them: larger is better, in the shapes of the masks.

    A distribution returns them if it decides which weights to keep. Masks without scores are taken to be random: their
    counts matter, but their positions do not.

    Args:
        masks: bool tensors by layer name.
        scores: the scores of all weights, by layer name.

    Example:
        >>> scores = {"fc": torch.tensor([[1.0, 3.0]])}
        >>> ScoredMasks({"fc": scores["fc"] > 2}, scores)
        {'fc': tensor([[False,  True]])}
    """

    def __init__(self, masks: Masks, scores: Scores) -> None:
        super().__init__(masks)
        self.scores = scores


def draw(shape: Sequence[int], count: int, *, block: int = 1, generator: torch.Generator) -> torch.Tensor:
    """Return a bool mask with exactly `count` ones, uniform among all such masks (of whole blocks).

    Example:
        >>> int(draw((4, 5), 7, generator=torch.Generator().manual_seed(0)).sum())
        7
    """
    zeros = torch.zeros((), dtype=torch.bool, device="cpu").expand(
        *shape
    )  # a single zero in memory, until resize makes a copy
    return resize(zeros, count, block=block, generator=generator)


def resize_towards(
    mask: torch.Tensor, count: int, goal: torch.Tensor | None, *, generator: torch.Generator
) -> torch.Tensor:
    """Return a copy of `mask` on the CPU with exactly `count` ones: those of `goal` are added first, or removed last.

    Within each of these groups the choice is random, as it is without a goal.

    Example:
        >>> mask, goal = torch.tensor([True, False, False, False]), torch.tensor([False, True, False, True])
        >>> resize_towards(mask, 3, goal, generator=torch.Generator())
        tensor([ True,  True, False,  True])
    """
    if goal is None:
        return resize(mask, count, generator=generator)
    mask, goal = mask.cpu(), goal.cpu()
    if count >= (ones := _ones(mask)):
        added = goal & ~mask
        chosen = resize(added, min(_ones(added), count - ones), generator=generator)
        return resize(mask | chosen, count, generator=generator)
    kept = mask & goal
    if _ones(kept) >= count:
        return resize(kept, count, generator=generator)
    return resize(mask & ~goal, count - _ones(kept), generator=generator) | kept


def resize(mask: torch.Tensor, count: int, *, block: int = 1, generator: torch.Generator) -> torch.Tensor:
    """Return a copy of `mask` on the CPU with exactly `count` ones, added or removed at random.

    In a mask of whole blocks, whole blocks are added or removed.
    """
    if block > 1:
        number, remainder = divmod(count, block**2)
        if remainder:
            raise ValueError(f"count: expected a multiple of {block**2}, the size of a block; got {count}")
        return tiled(resize(grid_of(mask, block), number, generator=generator), block, mask.shape)
    if not 0 <= count <= mask.numel():
        raise ValueError(f"count: expected an integer in [0, {mask.numel()}]; got {count}")
    result = mask.detach().to("cpu", torch.bool, copy=True).contiguous()
    flat = result.view(-1).numpy()  # numpy counts bools 200 times faster than torch
    ones = int(np.count_nonzero(flat))
    if ones == 0 and 2 * count > flat.size:  # fewer draws: start from the full mask
        flat.fill(True)
        ones = flat.size
    _write(flat, abs(count - ones), value=count > ones, generator=generator)
    return result


def resize_by(
    mask: torch.Tensor, count: int, scores: torch.Tensor, *, block: int = 1, generator: torch.Generator
) -> torch.Tensor:
    """Return a copy of `mask` on the CPU with exactly `count` ones: the largest scores added, or the smallest removed.

    Ties are broken at random. In a mask of whole blocks, whole blocks are added or removed, by their mean score.

    Example:
        >>> mask, scores = torch.tensor([True, True, False, False]), torch.tensor([1.0, 4.0, 3.0, 2.0])
        >>> resize_by(mask, 3, scores, generator=torch.Generator())
        tensor([ True,  True,  True, False])
    """
    number, remainder = divmod(count, block**2)
    if remainder or not 0 <= count <= mask.numel():
        raise ValueError(f"count: expected a multiple of {block**2} in [0, {mask.numel()}]; got {count}")
    grid, means = grid_of(mask.cpu(), block), means_of(scores.detach().cpu(), block).flatten()
    result = grid.flatten().clone()
    ones = _ones(result)
    pool = (~result if number > ones else result).nonzero().flatten()
    pool = pool[torch.randperm(len(pool), generator=generator, device="cpu")]
    best = pool[means[pool].argsort(descending=True, stable=True)]
    if number > ones:
        result[best[: number - ones]] = True
    else:
        result[best[number:]] = False
    return tiled(result.view(grid.shape), block, mask.shape)


def _write(flat: npt.NDArray[np.bool_], number: int, *, value: bool, generator: torch.Generator) -> None:
    """Set `number` entries that are not `value` yet to `value`, every choice equally likely."""
    candidates = _others(flat, value)
    left = candidates - number
    # Indices drawn with replacement, the ones already set ignored, are a sequential draw without replacement; a round
    # draws no more than what is missing, so the number is never overshot.
    while candidates > max(left, _REJECTION_IS_CHEAPER * flat.size):
        flat[torch.randint(flat.size, (candidates - left,), generator=generator, device="cpu").numpy()] = value
        candidates = _others(flat, value)
    if candidates > left:
        positions = np.flatnonzero(flat != value)
        flat[positions[torch.randperm(candidates, generator=generator, device="cpu")[: candidates - left].numpy()]] = (
            value
        )


def _others(flat: npt.NDArray[np.bool_], value: bool) -> int:
    ones = int(np.count_nonzero(flat))
    return flat.size - ones if value else ones


def top_k(scores: Scores, count: int, within: Masks | None = None) -> Masks:
    """Return the masks of the `count` largest scores over all layers together; of equal scores, the first are kept.

    Args:
        within: masks that must contain the result.

    Raises:
        ValueError: a score is not finite (the layer is named), or `count` is not in [0, number of scores].

    Example:
        >>> top_k({"a": torch.tensor([3.0, 1.0]), "b": torch.tensor([1.0, 2.0])}, 3)
        {'a': tensor([True, True]), 'b': tensor([False,  True])}
    """
    check_finite(scores, "scores: expected finite numbers")
    most = sum(score.numel() if within is None else _ones(within[name]) for name, score in scores.items())
    if not 0 <= count <= most:
        raise ValueError(f"count: expected an integer in [0, {most}]; got {count}")
    if not count:
        return {name: torch.zeros(score.shape, dtype=torch.bool, device=score.device) for name, score in scores.items()}
    threshold = _at_rank(_joined(scores, within), count)
    kept = {name: _inside(score.detach() > threshold, name, within).contiguous() for name, score in scores.items()}
    left = count - sum(counts_of(kept).values())
    for name, score in scores.items():
        ties = _inside(score.detach() == threshold, name, within).reshape(-1).nonzero().squeeze(1)[:left]
        kept[name].view(-1)[ties] = True
        left -= len(ties)
    return kept


def _joined(scores: Scores, within: Masks | None) -> torch.Tensor:
    """Return a copy of all scores in one row, minus infinity for those outside of `within`."""
    joined = torch.cat([score.detach().reshape(-1) for score in scores.values()])
    if within is not None:
        outside = torch.cat(
            [within[name].to(score.device).reshape(-1) for name, score in scores.items()]
        ).logical_not_()
        joined.masked_fill_(outside, -torch.inf)
    return joined


def _inside(mask: torch.Tensor, name: str, within: Masks | None) -> torch.Tensor:
    return mask if within is None else mask.logical_and_(within[name].to(mask.device))


def top_units(scores: Scores, blocks: Mapping[str, int], count: int, within: Masks | None = None) -> Masks:
    """Return the masks of the whole blocks with the largest mean scores that hold `count` entries, over all layers.

    If the next block no longer fits, the remaining count goes to smaller blocks and to entries (`counts.in_units`).
    Blocks of side 1 are entries; if there are no others, this is `top_k`.

    Args:
        blocks: the side of each layer's blocks.
        within: masks that must contain the result.

    Example:
        >>> scores = {"a": torch.arange(512.0).view(16, 32), "b": torch.full((2, 3), 200.0)}
        >>> {name: int(mask.sum()) for name, mask in top_units(scores, {"a": 16, "b": 1}, 260).items()}
        {'a': 256, 'b': 4}
    """
    if set(blocks.values()) <= {1}:
        return top_k(scores, count, within)
    grids = {name: means_of(score, blocks[name]) for name, score in scores.items()}
    sizes = {str(block**2): block**2 for block in blocks.values()}
    caps = dict.fromkeys(sizes, 0)
    for name, score in scores.items():
        caps[str(blocks[name] ** 2)] += score.numel() if within is None else _ones(within[name])
    inside = None if within is None else {name: grid_of(within[name], blocks[name]) for name in scores}
    counts = in_units(_ranked(grids, blocks, count, inside), sizes, caps)
    kept: Masks = {}
    for size, number in counts.items():
        alike = {name: grid for name, grid in grids.items() if blocks[name] ** 2 == sizes[size]}
        kept |= top_k(alike, number // sizes[size], inside)
    return {name: tiled(kept[name], blocks[name], score.shape) for name, score in scores.items()}


def _ranked(grids: Scores, blocks: Mapping[str, int], count: int, within: Masks | None) -> Counts:
    """Return, by block size, how many of the `count` entries with the largest scores are in blocks of that size."""
    sizes = torch.cat([torch.full((grid.numel(),), blocks[name] ** 2, device="cpu") for name, grid in grids.items()])
    order = _joined(grids, within).argsort(descending=True, stable=True).cpu()
    ranked = sizes[order]
    inside = (count - (ranked.cumsum(0) - ranked)).clamp_min(0).minimum(ranked)
    return {str(size): int(inside[ranked == size].sum()) for size in sizes.unique().tolist()}


def _at_rank(flat: torch.Tensor, rank: int) -> torch.Tensor:
    """Return the `rank`-th largest value, counted from 1, in a tensor of one dimension; reorders `flat`.

    Scores of lower precision are compared with it in its own precision, as they are not with a tensor of no dimension.
    """
    if flat.device.type == "cpu" and flat.dtype in (torch.float32, torch.float64):  # three times faster than topk there
        index = len(flat) - rank
        flat.numpy().partition(index)
        return flat[index : index + 1].clone()
    return flat.topk(rank, sorted=False).values.min().reshape(1)


def counts_of(masks: Mapping[str, torch.Tensor]) -> Counts:
    """Return the number of ones of each mask."""
    return {name: _ones(mask) for name, mask in masks.items()}


def densities_of(masks: Mapping[str, torch.Tensor]) -> Densities:
    """Return the density of each of the `masks`, by layer name.

    Raises:
        TypeError: `masks` is not a mapping of masks (`masks_of` returns those of a model).
    """
    check_mapping("masks", masks)
    return {name: _ones(mask) / max(1, mask.numel()) for name, mask in masks.items()}


def density_of(masks: Mapping[str, torch.Tensor]) -> float:
    """Return the fraction of ones over all masks together."""
    return sum(counts_of(masks).values()) / sum(mask.numel() for mask in masks.values())


def _ones(mask: torch.Tensor) -> int:
    return int(np.count_nonzero(mask.numpy())) if mask.device.type == "cpu" else int(mask.sum())


def overlap(first: Mapping[str, torch.Tensor], second: Mapping[str, torch.Tensor]) -> Densities:
    """Return, by layer, the entries active in both `first` and `second` as a fraction of those active in either.

    The overlap of two empty masks is 1.

    Raises:
        TypeError: `first` or `second` is not a mapping of masks.
        ValueError: they have different layer names.
    """
    for name, masks in (("first", first), ("second", second)):
        check_mapping(name, masks)
    if first.keys() != second.keys():
        raise ValueError(f"second: expected masks of the layers {sorted(first)}; got {sorted(second)}")
    both = {name: _ones(mask & second[name]) for name, mask in first.items()}
    either = {name: _ones(mask | second[name]) for name, mask in first.items()}
    return {name: both[name] / either[name] if either[name] else 1.0 for name in first}
