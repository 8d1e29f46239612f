"""Names from users: look them up in a table, match globs, and list or suggest names in messages."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import TypeVar

Entry = TypeVar("Entry")


def lookup(table: Mapping[str, Entry], name: str, what: str) -> Entry:
    """Return ``table[name]``.

    Args:
        what: name of the argument, for the message.

    Raises:
        ValueError: there is no such entry; the message lists the entries.

    Example:
        >>> lookup({"erk": 1}, "erk", "distribution")
        1
        >>> lookup({"erk": 1, "uniform": 2}, "ekr", "distribution")
        Traceback (most recent call last):
        ...
        ValueError: distribution: expected one of erk, uniform; got 'ekr'; did you mean 'erk'?
    """
    if not isinstance(name, str) or name not in table:
        raise ValueError(f"{what}: expected one of {', '.join(sorted(table))}; got {name!r}{did_you_mean(name, table)}")
    return table[name]


def matches_pattern(pattern: str, name: str) -> bool:
    """Whether `name` is `pattern`, or matches it as a glob (``*`` also matches dots).

    Example:
        >>> matches_pattern("*.attn.qkv", "blocks.0.attn.qkv"), matches_pattern("head", "heads")
        (True, False)
    """
    return bool(name) and (name == pattern or fnmatchcase(name, pattern))


def is_glob(pattern: str) -> bool:
    """Whether `pattern` may match other names than itself."""
    return any(sign in pattern for sign in "*?[")


def listed(names: Iterable[str], most: int = 12) -> str:
    """Return names for a message: at most `most` of them, and the number of the others.

    Example:
        >>> listed(["fc1", "fc2", "fc3", "fc4"], most=2), listed([])
        ('fc1, fc2 and 2 more', '(none)')
    """
    names = [*names]
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}" or "(none)"


def did_you_mean(name: object, names: Iterable[str]) -> str:
    """Return the end of a message that suggests the most similar of `names`, if any is similar to `name`.

    Example:
        >>> did_you_mean("excludes", ["include", "exclude"]), did_you_mean("x", ["include"])
        ("; did you mean 'exclude'?", '')
    """
    close = get_close_matches(name.lower(), names, n=1) if isinstance(name, str) else []
    return f"; did you mean {close[0]!r}?" if close else ""
