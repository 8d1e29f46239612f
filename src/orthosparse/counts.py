"""Turn densities of a tensor, a model or its layers into exact counts: rounded once, capped, raised to floors."""

import math
from collections.abc import Iterable, Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction

from orthosparse.aliases import Counts, Densities, Density
from orthosparse.checks import check_density, check_int, check_mapping
from orthosparse.registry import did_you_mean, is_glob, listed, lookup, matches_pattern
from orthosparse.structures import largest_fitting

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
    """Return the smallest density with four significant digits for which `count_of` is at least `count`.

    Example:
        >>> least_density(5997, 3 * 1999**2)
        0.0005003
    """
    below, above = (
        float(Context(prec=4, rounding=rounding).divide(Decimal(count), Decimal(size)))
        for rounding in (ROUND_FLOOR, ROUND_CEILING)
    )
    return below if count_of(below, size) >= count else above


def requested(density: float | None, count: int | None, size: int, unit: int = 1) -> int:
    """Return the count for a density or a count, out of `size` entries, in whole units of `unit` entries.

    Raises:
        TypeError: not exactly one of the two is given, or it is not a number.
        ValueError: it is out of range, or a count that is not a multiple of `unit`.
    """
    if (count is None) == (density is None):
        raise TypeError(f"density, count: expected exactly one of them; got density={density!r}, count={count!r}")
    if density is not None:
        return unit * count_of(density, size // unit)
    wanted = check_int(count, "count")
    if not 0 <= wanted <= size:
        raise ValueError(f"count: expected an integer in [0, {size}]; got {wanted}")
    if wanted % unit:
        raise ValueError(f"count: expected a multiple of {unit}, the size of a block; got {wanted}")
    return wanted


def resolve(density: float | None, count: int | None, least: int, size: int, *, floor: str, block: int = 1) -> int:
    """Return the count of one tensor: what is asked for or, if that is below `least`, what the policy `floor` decides.

    A density is rounded to whole blocks; a count must be a multiple of the block size.

    Raises:
        ValueError: the policy is unknown, or it is to raise an error; the message names the smallest density that
            works, and the largest block that fits.
    """
    wanted = requested(density, count, size, block**2)
    lookup(TENSOR_FLOORS, floor, "floor")
    if wanted >= least or floor == "partial":
        return wanted
    if floor == "minimal":
        return least
    if density is None:
        needed, came = f"count: expected at least {least}", f"{wanted}"
    else:
        needed = f"density: expected at least {least_density(least, size)} ({least} of {size} entries)"
        came = f"{density!r} ({wanted})"
    fits = largest_fitting(block, lambda smaller: least // block * smaller <= wanted)
    raise ValueError(
        f"{needed} for an orthogonal weight; got {came}; "
        "floor='partial' fills fewer, floor='minimal' fills as many as that"
        + (f"; structure={fits!r} fits" if fits else "")
    )


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
    """Split `total` exactly in proportion to `shares`, with the layers that overflow held at their caps."""
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


def in_units(counts: Mapping[str, int], units: Mapping[str, int], caps: Mapping[str, int]) -> Counts:
    """Make every count a multiple of its layer's unit; the total changes by at most half of the smallest unit.

    Layers with the same unit share by largest remainder. The largest units come first and are rounded down, and the
    remaining entries go to the smaller units; if those have no room, the larger ones are rounded up instead.

    Raises:
        ValueError: a unit does not divide its layer's cap.

    Example:
        >>> in_units({"a": 700, "b": 700, "c": 100}, {"a": 256, "b": 256, "c": 1}, {"a": 1024, "b": 1024, "c": 500})
        {'a': 768, 'b': 512, 'c': 220}
    """
    for name, unit in units.items():
        if caps[name] % unit:
            raise ValueError(f"units: expected a divisor of {caps[name]}, the size of {name!r}; got {unit}")
    left, result = sum(counts.values()), dict(counts)
    for unit in sorted(set(units.values()), reverse=True):
        group = [name for name in counts if units[name] == unit]
        smaller = [name for name in counts if units[name] < unit]
        asked = Fraction(left - sum(counts[name] for name in smaller), unit)
        number = _number(asked, Fraction(left, unit), Fraction(sum(caps[name] for name in smaller), unit))
        room = {name: caps[name] // unit for name in group}
        number = max(0, min(number, sum(room.values())))
        # A layer with count 0 stays empty while the others have room.
        shares = {name: counts[name] for name in group}
        if number > sum(room[name] for name in group if shares[name]):
            shares = room
        result |= {name: unit * share for name, share in apportion(shares, number, room).items()}
        left -= unit * number
    return result


def _number(asked: Fraction, left: Fraction, room: Fraction) -> int:
    """The integer beside `asked` that leaves the smaller units, which have `room`, none of `left` over: the lower one
    where it can be; the nearest one to all that is left where there are no smaller units or they have too little room.
    """
    for number in (math.floor(asked), math.ceil(asked)):
        if 0 <= left - number <= room:
            return number
    return math.floor(left + Fraction(1, 2)) if room == 0 else math.floor(asked)


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


def check_densities(density: Density | None) -> Density:
    """Return a density as a float, or a mapping as it is.

    Raises:
        TypeError: it is neither of them.
        ValueError: it is NaN, or outside [0, 1].
    """
    return density if isinstance(density, Mapping) else check_density(density)


def densities_by_layer(density: Mapping[str, float], names: Iterable[str]) -> Densities:
    """Return the densities of the layers that are matched, in the order of `names`; the last match wins.

    A name or a glob matches layers, and modules, of which it selects all layers.

    Raises:
        TypeError: `density` is not a mapping from strings to numbers.
        ValueError: `density` is empty, a density is outside [0, 1], a pattern matches no layer, or a later and wider
            one overrides it altogether.

    Example:
        >>> densities_by_layer({"*": 0.1, "head": 1.0}, ["body.0", "body.1", "head"])
        {'body.0': 0.1, 'body.1': 0.1, 'head': 1.0}
    """
    check_mapping("density", density, object)
    if not density:
        raise ValueError("density: expected a density for at least one layer; got {}")
    below: dict[str, list[str]] = {}  # the layers of each module, and each layer itself
    for name in names:
        parts = name.split(".")
        for number in range(1, len(parts) + 1):
            below.setdefault(".".join(parts[:number]), []).append(name)
    found: Densities = {}
    matched: dict[str, set[str]] = {}
    for pattern, value in density.items():
        checked = check_density(value, f"density: {pattern!r}")
        layers = dict.fromkeys(_matched(pattern, below), checked)
        for earlier, others in matched.items():
            if others < layers.keys():
                raise ValueError(
                    f"density: expected {pattern!r} before {earlier!r}, which it overrides; the last match wins"
                )
        matched[pattern] = {*layers}
        found |= layers
    return {name: found[name] for name in below if name in found}


def _matched(pattern: str, below: Mapping[str, list[str]]) -> list[str]:
    named = pattern in below and not is_glob(pattern)
    around = [pattern] if named else [name for name in below if matches_pattern(pattern, name)]
    if not around:
        layers = [name for name, names in below.items() if name in names]
        raise ValueError(
            f"density: expected names or globs of layers to sparsify ({listed(layers)}); "
            f"{pattern!r} matches none of them{did_you_mean(pattern, below)}"
        )
    return [layer for name in around for layer in below[name]]
