"""Look a name up in a table, or say which names there are."""

from collections.abc import Mapping
from typing import TypeVar

Entry = TypeVar("Entry")


def lookup(table: Mapping[str, Entry], name: str, what: str) -> Entry:
    """Return ``table[name]``.

    Args:
        what: the argument's name, for the message.

    Raises:
        ValueError: no such entry; the message lists those there are.

    Example:
        >>> lookup({"erk": 1}, "erk", "distribution")
        1
        >>> lookup({"erk": 1, "uniform": 2}, "ekr", "distribution")
        Traceback (most recent call last):
        ...
        ValueError: distribution: expected one of erk, uniform; got 'ekr'
    """
    if not isinstance(name, str) or name not in table:
        raise ValueError(f"{what}: expected one of {', '.join(sorted(table))}; got {name!r}")
    return table[name]
