"""Tables of members by name, each imported when it is looked up."""

from collections.abc import Iterator, Mapping, MutableMapping
from importlib import import_module
from typing import Any, TypeVar

Entry = TypeVar("Entry")


class LazyTable(MutableMapping[str, Entry]):
    """A table of entries by name, each imported when it is first looked up; new entries can be added as to a dict.

    Args:
        homes: the location of each entry: ``"package.module:name"``, or ``"package.module"`` for the module itself.

    Example:
        >>> table = LazyTable({"square root": "math:sqrt"})
        >>> table["square root"](9.0), list(table)
        (3.0, ['square root'])
    """

    def __init__(self, homes: Mapping[str, str]) -> None:
        self.homes = dict(homes)
        self._loaded: dict[str, Entry] = {}

    def __getitem__(self, name: str) -> Entry:
        if name not in self._loaded:
            self._loaded[name] = import_from(self.homes[name])
        return self._loaded[name]

    def __setitem__(self, name: str, entry: Entry) -> None:
        self._loaded[name] = entry

    def __delitem__(self, name: str) -> None:
        if name not in self:
            raise KeyError(name)
        self.homes.pop(name, None)
        self._loaded.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        return iter({**self.homes, **self._loaded})

    def __len__(self) -> int:
        return len({**self.homes, **self._loaded})

    def __contains__(self, name: object) -> bool:
        return name in self.homes or name in self._loaded

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self)})"


def import_from(home: str) -> Any:
    """Return the object at ``"package.module:name"``, or the module ``"package.module"`` itself."""
    path, _, name = home.partition(":")
    module = import_module(path)
    return getattr(module, name) if name else module
