"""Densities turned into exact integer counts: rounded once, capped, raised to their floors, the total kept."""

import math
from collections.abc import Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction

from orthosparse.checks import check_density
from orthosparse.mappings import Counts

FLOORS = {
    "raise": "take the missing entries from the other layers, the total kept",
    "partial": "keep the count: a partial isometry",
    "minimal": "as many as orthogonality needs, more than asked",
    "error": "refuse",
}
# What a single tensor, which has no other layers to take entries from, can do.
TENSOR_FLOORS = {name: what for name, what in FLOORS.items() if name != "raise"}


def count_of(density: float, size: int) -> int:
    """Return the integer nearest to ``density * size``, halves up.

    Example:
        >>> count_of(0.1, 464_432), count_of(0.5, 5)
        (46443, 3)
    """
    return min(size, math.floor(Fraction(check_density(density)) * size + Fraction(1, 2)))


def least_density(count: int, size: int) -> float:
    """Return a density of four significant digits, the smallest of which `count_of` makes at least `count` of `size`.

    Example:
        >>> least_density(5997, 3 * 1999**2)
        0.0005003
    """
    below, above = (
        float(Context(prec=4, rounding=rounding).divide(Decimal(count), Decimal(size)))
        for rounding in (ROUND_FLOOR, ROUND_CEILING)
    )
    return below if count_of(below, size) >= count else above


def apportion(shares: Mapping[str, float], total: int, caps: Mapping[str, int]) -> Counts:
    """Split `total` in proportion to `shares`, no layer above its cap, by largest remainder (ties: the earlier layer).

    What a full layer cannot take goes to the others in proportion to their shares.

    Raises:
        ValueError: a share is negative or not finite, or the layers with a share cannot hold `total`.

    Example:
        >>> apportion({"a": 1.0, "b": 1.0, "c": 2.0}, 11, {"a": 9, "b": 9, "c": 4})
        {'a': 4, 'b': 3, 'c': 4}
    """
    for name, share in shares.items():
        if not (math.isfinite(share) and share >= 0):
            raise ValueError(f"shares: expected finite numbers of at least 0; got {share!r} for {name!r}")
    room = sum(caps[name] for name, share in shares.items() if share > 0)
    if not 0 <= total <= room:
        raise ValueError(f"total: expected a count in [0, {room}]; got {total}")
    quotas = _quotas({name: Fraction(share) for name, share in shares.items()}, total, caps)
    counts = {name: math.floor(quota) for name, quota in quotas.items()}
    by_remainder = sorted(counts, key=lambda name: counts[name] - quotas[name])  # sorted() is stable
    for name in by_remainder[: total - sum(counts.values())]:
        counts[name] += 1
    return counts


def _quotas(shares: dict[str, Fraction], total: int, caps: Mapping[str, int]) -> dict[str, Fraction]:
    """Exact real-valued parts of `total`: proportional to `shares`, the layers that overflow held at their caps."""
    full: set[str] = set()
    while True:
        left = total - sum(caps[name] for name in full)
        weight = sum(share for name, share in shares.items() if name not in full)
        if weight == 0:
            quotas = dict.fromkeys(shares, Fraction(0))
        else:
            quotas = {name: share * left / weight for name, share in shares.items()}
        quotas.update((name, Fraction(caps[name])) for name in full)
        over = {name for name, quota in quotas.items() if quota > caps[name]}
        if not over:
            return quotas
        full |= over


def raise_to_floors(counts: Mapping[str, int], floors: Mapping[str, int]) -> Counts:
    """Raise every count to its floor, taking what that costs from the others in proportion to what they can spare.

    Raises:
        ValueError: the total is below the sum of the floors.

    Example:
        >>> raise_to_floors({"a": 2, "b": 30, "c": 14}, {"a": 6, "b": 10, "c": 10})
        {'a': 6, 'b': 27, 'c': 13}
    """
    total, least = sum(counts.values()), sum(floors[name] for name in counts)
    if total < least:
        raise ValueError(f"counts: expected a total of at least {least}, the sum of the floors; got {total}")
    spare = {name: max(count - floors[name], 0) for name, count in counts.items()}
    missing = sum(max(floors[name] - count, 0) for name, count in counts.items())
    taken = apportion(spare, missing, spare)
    return {name: max(count, floors[name]) - taken[name] for name, count in counts.items()}
