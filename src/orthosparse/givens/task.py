"""The arguments of the Givens sampler, checked once for all backends."""

import math
from collections.abc import Sequence
from numbers import Real
from typing import NamedTuple

from orthosparse.checks import check_int
from orthosparse.registry import lookup

STOPS = {"exact": 0, "closest": 1, "first": 2}
ROTATIONS = 3  # the stopping rule whose count is a number of rotations
STARTS = {"identity": False, "permuted": True}
_LARGEST_SIDE = 2**31 - 1


class Task(NamedTuple):
    """One kind of matrix: the wide matrix that is rotated, and the wanted rows of the result.

    A tall result is the transpose of the rotated matrix. `cosine` and `sine` are NaN if each rotation draws its own
    angle.
    """

    height: int
    width: int
    tall: bool
    first: int
    last: int
    stop: int
    cosine: float
    sine: float
    permuted: bool

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the wanted rows of the result."""
        return self.last - self.first, self.height if self.tall else self.width

    @property
    def work_rows(self) -> tuple[int, int]:
        """Range of rows of the rotated matrix that are wanted."""
        return (0, self.height) if self.tall else (self.first, self.last)

    @property
    def work_cols(self) -> tuple[int, int]:
        """Range of columns of the rotated matrix that are wanted."""
        return (self.first, self.last) if self.tall else (0, self.width)


def make_task(
    shape: Sequence[int],
    *,
    stop: str = "exact",
    angle: float | None = None,
    start: str = "identity",
    rows: tuple[int, int] | None = None,
) -> Task:
    """Return the checked task."""
    out, into = _check_shape(shape)
    first, last = (0, out) if rows is None else _check_rows(rows, out)
    cosine, sine = (math.nan, math.nan) if angle is None else _check_angle(angle)
    rule, permuted = lookup(STOPS, stop, "stop"), lookup(STARTS, start, "start")
    return Task(min(out, into), max(out, into), out > into, first, last, rule, cosine, sine, permuted)


def _check_shape(shape: object) -> tuple[int, int]:
    if not isinstance(shape, Sequence) or isinstance(shape, str) or len(shape) != 2:
        raise ValueError(f"shape: expected two sizes (rows, cols); got {shape!r}")
    out, into = check_int(shape[0], "shape"), check_int(shape[1], "shape")
    if not (1 <= out <= _LARGEST_SIDE and 1 <= into <= _LARGEST_SIDE):
        raise ValueError(f"shape: expected sizes from 1 to {_LARGEST_SIDE}; got {out} x {into}")
    return out, into


def _check_rows(rows: object, out: int) -> tuple[int, int]:
    if not isinstance(rows, Sequence) or isinstance(rows, str) or len(rows) != 2:
        raise ValueError(f"rows: expected a pair (first, last); got {rows!r}")
    first, last = check_int(rows[0], "rows"), check_int(rows[1], "rows")
    if not 0 <= first <= last <= out:
        raise ValueError(f"rows: expected 0 <= first <= last <= {out}; got {(first, last)}")
    return first, last


def _check_angle(angle: object) -> tuple[float, float]:
    if isinstance(angle, bool) or not isinstance(angle, Real):
        raise TypeError(f"angle: expected a number of radians or None; got {angle!r}")
    angle = float(angle)
    if not math.isfinite(angle):
        raise ValueError(f"angle: expected a finite number of radians; got {angle!r}")
    cosine, sine = math.cos(angle), math.sin(angle)
    # A quarter turn moves columns and mixes nothing: the matrix would stay a permutation, whatever its mask.
    if min(abs(cosine), abs(sine)) < 1e-9:
        raise ValueError(f"angle: a multiple of pi/2 mixes no columns, so no density is reached; got {angle!r}")
    return cosine, sine
