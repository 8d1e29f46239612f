"""What a number that a user gives must be."""

import math
from numbers import Real


def check_number(name: str, number: float, *, least: float = -math.inf) -> None:
    """Raise unless `number` is a finite real number of at least `least`.

    Raises:
        TypeError: it is not a real number (a bool is not one).
        ValueError: it is NaN, infinite, or below.

    Example:
        >>> check_number("step_size", math.nan)
        Traceback (most recent call last):
        ...
        ValueError: step_size: expected a finite number; got nan
    """
    expected = "a finite number" if least == -math.inf else f"a number of at least {least:g}"
    _check_real(name, number, expected)
    if not (math.isfinite(number) and number >= least):
        raise ValueError(f"{name}: expected {expected}; got {number!r}")


def check_positive(name: str, number: float) -> None:
    """Raise unless `number` is a finite real number above 0; as `check_number` does."""
    _check_real(name, number, "a positive number")
    if not 0 < number < math.inf:
        raise ValueError(f"{name}: expected a positive number; got {number!r}")


def _check_real(name: str, number: object, expected: str) -> None:
    if isinstance(number, bool) or not isinstance(number, Real):
        raise TypeError(f"{name}: expected {expected}; got {number!r} ({type(number).__name__})")
