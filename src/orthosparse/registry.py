"""Tables of members by name: each imported when it is looked up, and an error that says which names there are."""

from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any, TypeVar

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
        ValueError: distribution: expected one of erk, uniform; got 'ekr'; did you mean 'erk'?
    """
    if not isinstance(name, str) or name not in table:
        raise ValueError(f"{what}: expected one of {', '.join(sorted(table))}; got {name!r}{did_you_mean(name, table)}")
    return table[name]


def listed(names: Iterable[str], most: int = 12) -> str:
    """Return names for a message; of many, the first and how many more there are.

    Example:
        >>> listed(["fc1", "fc2", "fc3", "fc4"], most=2), listed([])
        ('fc1, fc2 and 2 more', '(none)')
    """
    names = [*names]
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}" or "(none)"


def did_you_mean(name: object, names: Iterable[str]) -> str:
    """Return the end of a message that names what is spelt nearly like `name`, if anything is.

    Example:
        >>> did_you_mean("excludes", ["include", "exclude"]), did_you_mean("x", ["include"])
        ("; did you mean 'exclude'?", '')
    """
    close = get_close_matches(name.lower(), names, n=1) if isinstance(name, str) else []
    return f"; did you mean {close[0]!r}?" if close else ""


class LazyTable(MutableMapping[str, Entry]):
    """Entries by name, of which each is imported when it is first looked up. Further ones can be put in as into a dict.

    Args:
        homes: where each entry lies: ``"package.file:name"``, or ``"package.file"`` for the file itself.

    Example:
        >>> table = LazyTable({"square root": "math:sqrt"})
        >>> table["square root"](9.0), list(table)
        (3.0, ['square root'])
    """

    def __init__(self, homes: Mapping[str, str]) -> None:
        self.homes = dict(homes)
        self._found: dict[str, Entry] = {}

    def __getitem__(self, name: str) -> Entry:
        if name not in self._found:
            self._found[name] = import_from(self.homes[name])
        return self._found[name]

    def __setitem__(self, name: str, entry: Entry) -> None:
        self._found[name] = entry

    def __delitem__(self, name: str) -> None:
        if name not in self:
            raise KeyError(name)
        self.homes.pop(name, None)
        self._found.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        return iter({**self.homes, **self._found})

    def __len__(self) -> int:
        return len({**self.homes, **self._found})

    def __contains__(self, name: object) -> bool:
        return name in self.homes or name in self._found

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self)})"


def import_from(home: str) -> Any:
    """Return what lies at ``"package.file:name"``, or the file ``"package.file"`` itself."""
    file, _, name = home.partition(":")
    module = import_module(file)
    return getattr(module, name) if name else module
