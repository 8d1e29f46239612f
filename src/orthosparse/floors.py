"""What becomes of layers that are given fewer entries than orthogonality needs."""

import logging

from orthosparse.counts import least_density, raise_to_floors
from orthosparse.mappings import Counts, Masks
from orthosparse.masks import counts_of, resize
from orthosparse.randomness import derive

_log = logging.getLogger(__name__)


def meet_floors(masks: Masks, floors: Counts, floor: str, seed: int) -> Masks:
    """Return masks that have at least as many entries as `floors`, by the policy `floor` (a name in `counts.FLOORS`).

    Entries are added and removed at random, from a generator that depends on `seed` and the layer's name.

    Raises:
        ValueError: the policy is to refuse, or all entries together are fewer than the floors.
    """
    counts = counts_of(masks)
    below = [name for name, count in counts.items() if count < floors[name]]
    if not below or floor == "partial":
        return masks
    numel, least = sum(mask.numel() for mask in masks.values()), sum(floors.values())
    policy = " with floor='raise'" if floor == "error" else ""
    remedy = (
        f"density {least_density(least, numel)} is the least for this model{policy}; "
        "floor='partial' makes partial isometries"
    )
    if floor == "error":
        named = ", ".join(f"{name} has {counts[name]} of {floors[name]}" for name in below)
        raise ValueError(f"density: expected enough entries for orthogonality in every layer; {named}; {remedy}")
    if floor == "raise" and sum(counts.values()) < least:
        raise ValueError(
            f"density: expected at least {least} entries, the sum of the floors; got {sum(counts.values())}; {remedy}"
        )
    if floor == "raise":
        raised = raise_to_floors(counts, floors)
        _log.warning("below their floors, raised at the cost of the other layers: %s", ", ".join(below))
    else:
        raised = {name: max(count, floors[name]) for name, count in counts.items()}
    moved = {name for name in counts if raised[name] != counts[name]}
    return {
        name: resize(mask, raised[name], generator=derive(seed, name, "floor")).to(mask.device)
        if name in moved
        else mask
        for name, mask in masks.items()
    }


def floor_notes(asked: Counts, got: Counts, floors: Counts) -> dict[str, str]:
    """What became of each layer's count, in words."""
    notes = dict.fromkeys(got, "")
    for name, after in got.items():
        before = asked[name]
        if before < floors[name]:
            met = after >= floors[name]
            notes[name] = f"raised to its floor {floors[name]}" if met else f"partial: floor {floors[name]}"
        elif after != before:
            notes[name] = f"gave {before - after}" if after < before else f"took {after - before}"
    return notes
