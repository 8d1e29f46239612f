"""Resize masks if a layer has fewer entries than orthogonality needs."""

import logging
from collections.abc import Mapping
from typing import Any

import torch

from orthosparse.aliases import Counts, Masks
from orthosparse.counts import in_units, least_density, raise_to_floors
from orthosparse.layers import Layer
from orthosparse.masks import ScoredMasks, counts_of, resize, resize_by
from orthosparse.randomness import derive
from orthosparse.registry import listed
from orthosparse.structures import largest_fitting

_log = logging.getLogger(__name__)


def meet_floors(
    masks: Masks, floors: Counts, floor: str, seed: int, layers: Mapping[str, Layer], *, fixed: bool = False
) -> Masks:
    """Return `masks`, of which some have too few entries, resized to at least the numbers in `floors`.

    Units (entries or blocks) are added and removed by score if the masks have scores, else at random, with a generator
    that depends on `seed` and the name of the layer.

    Args:
        floor: the policy, a name in `counts.FLOORS`; ``partial`` keeps the masks as they are.
        fixed: whether densities are given by layer; then no layer gives entries to another.

    Raises:
        ValueError: the policy is to raise an error, or all entries together are fewer than the floors; the message
            names the smallest density that works, and the largest blocks that fit.
    """
    if floor == "partial":
        return masks
    counts = counts_of(masks)
    below = [name for name, count in counts.items() if count < floors[name]]
    if fixed and floor != "minimal":
        raise ValueError(_too_few(below, counts, floors, layers))
    numel, least = sum(mask.numel() for mask in masks.values()), sum(floors.values())
    policy = " with floor='raise'" if floor == "error" else ""
    remedy = (
        f"density {least_density(least, numel)} is the least for this model{policy}; "
        f"floor='partial' makes partial isometries{_smaller_blocks(counts, floors, floor, layers)}"
    )
    if floor == "error":
        named = ", ".join(f"{name} has {counts[name]} of {floors[name]}" for name in below)
        raise ValueError(f"density: expected enough entries for orthogonality in every layer; {named}; {remedy}")
    if floor == "raise" and sum(counts.values()) < least:
        raise ValueError(
            f"density: expected at least {least} entries, the sum of the floors; got {sum(counts.values())}; {remedy}"
        )
    if floor == "raise":
        raised = _raised(counts, floors, layers)
        _log.warning("orthosparse: layers below their floors were raised at the cost of the others: %s", listed(below))
    else:
        raised = {name: max(count, floors[name]) for name, count in counts.items()}
    scores = masks.scores if isinstance(masks, ScoredMasks) else {}

    def moved(name: str, mask: torch.Tensor) -> torch.Tensor:
        if raised[name] == counts[name]:
            return mask
        own: dict[str, Any] = {"block": layers[name].block, "generator": derive(seed, name, "floor")}
        if name in scores:
            return resize_by(mask, raised[name], scores[name], **own).to(mask.device)
        return resize(mask, raised[name], **own).to(mask.device)

    return {name: moved(name, mask) for name, mask in masks.items()}


def _too_few(below: list[str], counts: Counts, floors: Counts, layers: Mapping[str, Layer]) -> str:
    """Say which densities by layer are too small, and what they must be at least."""
    needed = [
        f"{least_density(floors[name], layers[name].numel)} for {name!r} ({counts[name]} entries of {floors[name]})"
        for name in below
    ]
    return (
        f"density: expected at least {listed(needed, most=4)}: "
        "densities given by layer take no entries from other layers; "
        "floor='minimal' adds what is missing, floor='partial' makes partial isometries"
    )


def _raised(counts: Counts, floors: Counts, layers: Mapping[str, Layer]) -> Counts:
    """Raise every count to its floor at the cost of the others, all in whole units."""
    above = {name: count - floors[name] for name, count in raise_to_floors(counts, floors).items()}
    room = {name: layers[name].numel - floors[name] for name in counts}
    spare = in_units(above, {name: layers[name].unit for name in counts}, room)
    return {name: floors[name] + spare[name] for name in counts}


def _smaller_blocks(counts: Counts, floors: Counts, floor: str, layers: Mapping[str, Layer]) -> str:
    """Name the largest structure, smaller than the current one, for which the counts are enough."""

    def fits(block: int) -> bool:
        less = {name: least * min(layers[name].block, block) // layers[name].block for name, least in floors.items()}
        if floor == "raise":
            return sum(less.values()) <= sum(counts.values())
        return all(less[name] <= count for name, count in counts.items())

    structure = largest_fitting(max(layer.block for layer in layers.values()), fits)
    return f"; structure={structure!r} fits" if structure else ""
