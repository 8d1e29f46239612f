"""How many entries a sparse weight gets: what was asked, what orthogonality needs, and what part of it is a matrix."""

import math
from collections.abc import Sequence

from orthosparse.checks import check_density
from orthosparse.counts import TENSOR_FLOORS, apportion, count_of, least_density, raise_to_floors
from orthosparse.registry import lookup
from orthosparse.structures import largest_fitting


def requested(density: float | None, count: int | None, size: int) -> int:
    """Return the count that a density, or a count, asks for out of `size` entries.

    Raises:
        TypeError: not exactly one of both is given, or it is not a number.
        ValueError: it is out of range.
    """
    if count is None and density is not None:
        return count_of(density, size)
    if count is None or density is not None:
        raise TypeError(f"density, count: expected exactly one of them; got density={density!r}, count={count!r}")
    if isinstance(count, bool) or not isinstance(count, int):
        raise TypeError(f"count: expected an integer in [0, {size}]; got {count!r} ({type(count).__name__})")
    if not 0 <= count <= size:
        raise ValueError(f"count: expected an integer in [0, {size}]; got {count}")
    return count


def resolve(density: float | None, count: int | None, least: int, size: int, *, floor: str, block: int = 1) -> int:
    """Return the count to fill: what is asked, or where that is below `least`, what the policy `floor` makes of it.

    A density is rounded to whole blocks; a count must be made of them.

    Raises:
        ValueError: no such policy, or the policy is to refuse; the message names the smallest density that works, and
            the largest block that would do.
    """
    wanted = requested(density, count, size) if block == 1 else _requested_blocks(density, count, size, block)
    lookup(TENSOR_FLOORS, floor, "floor")
    if wanted >= least or floor == "partial":
        return wanted
    if floor == "minimal":
        return least
    came = f"count: got {wanted}" if density is None else f"density: got {density!r}, {wanted} entries"
    raise ValueError(
        f"{came}; expected at least {least_density(least, size)}, {least} entries of {size}, for an orthogonal weight "
        f"(floor='partial' fills fewer, floor='minimal' fills as many as that){_smaller_block(wanted, least, block)}"
    )


def _requested_blocks(density: float | None, count: int | None, size: int, block: int) -> int:
    """As `requested`, a multiple of the size of a block."""
    unit = block**2
    if count is None and density is not None:
        return unit * count_of(density, size // unit)
    wanted = requested(density, count, size)
    if wanted % unit:
        raise ValueError(f"count: expected a multiple of {unit}, the size of a block; got {wanted}")
    return wanted


def _smaller_block(wanted: int, least: int, block: int) -> str:
    """Name the largest structure with which `wanted` entries are enough."""
    fits = largest_fitting(block, lambda smaller: least // block * smaller <= wanted)
    return f"; structure={fits!r} fits" if fits else ""


def inside(
    total: int, least: int, room: int, size: int, *, center_density: float | None = None, core: float | None = None
) -> int:
    """Return how many of a kernel's `total` entries its matrices get, out of the `room` they have.

    `core` is their share of `total`, `center_density` their density. By default that is min(d k, sqrt(d)), k the number
    of taps: d k is where all entries are in the matrices, and sqrt(d) is the paper's choice. The result is clipped to
    what orthogonality needs and to what `total` allows.

    Raises:
        ValueError: both are given, or one is out of range.
    """
    if core is not None:
        if center_density is not None:
            raise ValueError(f"core: expected None beside center_density; got {core!r} and {center_density!r}")
        return core_of(total, least, room, core)
    if center_density is None:
        overall = total / size
        center_density = min(overall * (size / room), math.sqrt(overall))
    return max(least, min(count_of(check_density(center_density, "center_density"), room), total))


def core_of(total: int, least: int, room: int, core: float | None) -> int:
    """Return the share `core` of `total` entries (None: all), clipped to what orthogonality needs and to `room`."""
    share = total if core is None else count_of(check_density(core, "core"), total)
    return max(least, min(share, room))


def share_out(count: int, wanted: Sequence[int], least: int, room: int) -> list[int]:
    """Split `count` over matrices in proportion to what their masks have, each between `least` and `room` entries."""
    # One more for each, so that matrices with empty masks can share too.
    shares = apportion({str(i): n + 1 for i, n in enumerate(wanted)}, count, {str(i): room for i in range(len(wanted))})
    return list(raise_to_floors(shares, dict.fromkeys(shares, least)).values())
