"""Masks of EOI and SAO, entry by entry."""

from typing import Any

from orthosparse.lab.experiments import Experiment, MaskPicture
from orthosparse.lab.paper._book import Book
from orthosparse.lab.paper._rendered import Column, Line, Measured, Picture, Rendered
from orthosparse.lab.paper._tables import table_of

TITLE = "Masks of EOI and SAO"
SEEDS = (1,)
_SCHEMES = {"eoi": "EOI", "sao": "SAO"}
_NOTES = ["32 x 32 at density 0.125: the paper does not say its size and density."]


def experiments(*, smoke: bool = False) -> list[Experiment]:
    """Return a picture of each scheme."""
    return list(_all(smoke).values())


def render(rows: list[dict[str, Any]], *, smoke: bool = False) -> Rendered:
    """Return the masks, the first seed's, and how orthogonal their matrices are."""
    book, found = Book(rows), _all(smoke)
    pictures = [_picture(label, row) for name, label in _SCHEMES.items() for row in book.rows(found[name])[0][:1]]

    def measure(line: Line, column: Column) -> Measured:
        return book.measured(found[line.key], column.key)

    columns = [Column("count", "active entries", digits=0), Column("orthogonality", "||A'A - I||")]
    lines = [Line(name, (label,), method=label) for name, label in _SCHEMES.items()]
    table = table_of("The matrices", columns, lines, measure, heads=("scheme",), better=None, digits=2)
    return Rendered(tables=[table], pictures=pictures, notes=_NOTES)


def _all(smoke: bool) -> dict[str, Experiment]:
    return {name: MaskPicture(name, size=8, density=0.25) if smoke else MaskPicture(name) for name in _SCHEMES}


def _picture(label: str, row: dict[str, Any]) -> Picture:
    mask, columns = row["curves"]["mask"], row["metrics"]["columns"]
    entries = tuple(tuple(mask[start : start + columns]) for start in range(0, len(mask), columns))
    return Picture(label, entries, f"{row['metrics']['count']} of {len(mask)} entries, seed {row['seed']}")
