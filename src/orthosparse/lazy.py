"""Tables of members by name, each imported when it is looked up."""

from collections.abc import Iterator, Mapping, MutableMapping
from importlib import import_module
from typing import Any, TypeVar

Entry = TypeVar("Entry")


class LazyTable(MutableMapping[str, Entry]):
    """A table of entries by name, each imported when it is first looked up; new entries can be added as to a dict.

    Args:
        homes: where each entry is found: ``"package.file:name"``, or ``"package.file"`` for the file itself.

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
