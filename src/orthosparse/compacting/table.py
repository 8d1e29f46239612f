"""The table that compact returns: the form of each layer, the speedup, and why a layer was not replaced."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from orthosparse.tables import html_table, text_table

MASKED = "masked"
_HEADINGS = ("layer", "shape", "density", "form", "ratio", "note")


@dataclass(frozen=True)
class Form:
    """The form of one layer.

    Attributes:
        form: ``block:64`` (or another size), ``entries``, or ``masked`` if the layer was not replaced.
        ratio: time of the masked layer divided by that of the compact one, forward + backward; None without timing.
        note: why the layer was not replaced.
    """

    layer: str
    shape: tuple[int, ...]
    density: float
    form: str
    ratio: float | None = None
    note: str = ""


@dataclass(frozen=True)
class CompactTable:
    """The result of `compact`; ``print`` it, show it in a notebook, or take ``to_dict()``."""

    rows: tuple[Form, ...]

    @property
    def exchanged(self) -> dict[str, str]:
        """The form of each layer that was replaced."""
        return {row.layer: row.form for row in self.rows if row.form != MASKED}

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON, and for ``like=``."""
        return asdict(self)

    def __str__(self) -> str:
        table = text_table(_HEADINGS, map(_cells, self.rows), left=("layer", "shape", "form", "note"))
        return f"{table}\n\n{self._last_line()}"

    def _repr_html_(self) -> str:
        return html_table(_HEADINGS, map(_cells, self.rows), [self._last_line()])

    def _last_line(self) -> str:
        return f"{len(self.exchanged)} of {len(self.rows)} layers hold only their active weights"


def forms_like(like: Any) -> dict[str, str]:
    """Return the form of each exchanged layer in a table, in what its ``to_dict()`` gave, or in a state dict.

    Raises:
        TypeError: none of these.
    """
    if isinstance(like, CompactTable):
        return like.exchanged
    if not isinstance(like, Mapping) or not all(isinstance(key, str) for key in like):
        raise TypeError(f"like: expected a table that compact returned, or a state dict; got {type(like).__name__}")
    if "rows" in like:
        return {row["layer"]: row["form"] for row in like["rows"] if row["form"] != MASKED}
    names = [key.removesuffix("values").rstrip(".") for key in like if key.split(".")[-1] == "values"]
    forms = {}
    for name in names:
        prefix = f"{name}." if name else ""
        if f"{prefix}row_starts" in like and f"{prefix}columns" in like:
            values = like[f"{prefix}values"]
            forms[name] = "entries" if values.dim() == 2 else f"block:{values.shape[1]}"
    return forms


def _cells(row: Form) -> tuple[str, ...]:
    ratio = "" if row.ratio is None else f"{row.ratio:.2f}x"
    return row.layer, "x".join(map(str, row.shape)), f"{row.density:.4f}", row.form, ratio, row.note
