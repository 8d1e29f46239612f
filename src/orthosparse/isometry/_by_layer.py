"""What was measured of every layer: a dictionary that a notebook shows as a table."""

from typing import Protocol, TypeVar

from orthosparse.tables import html_table


class Measured(Protocol):
    """What a layer's entry can do."""

    def cells(self) -> dict[str, str]:
        """Return the columns of its line: heading and text."""


Entry = TypeVar("Entry", bound=Measured)


class ByLayer(dict[str, Entry]):
    """Entries by layer name."""

    def _repr_html_(self) -> str:
        lines = [{"layer": name, **entry.cells()} for name, entry in self.items()]
        return html_table(list(lines[0]) if lines else ["layer"], [list(line.values()) for line in lines])
