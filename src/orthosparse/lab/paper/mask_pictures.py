"""Masks of EOI and SAO, entry by entry."""

from typing import Any

import numpy as np

from orthosparse.lab.experiments import Experiment
from orthosparse.lab.experiments.mask_picture import MaskPicture
from orthosparse.lab.paper._rows import RowIndex
from orthosparse.lab.paper._tables import Column, Line, Rendered, table_of
from orthosparse.lab.rendering.contents import Picture
from orthosparse.lab.rendering.pictures import picture_of

TITLE = "Masks of EOI and SAO"
SEEDS = (1,)
_SCHEMES = {"eoi": "EOI", "sao": "SAO"}
_COLUMNS = [Column("count", "active entries", digits=0), Column("orthogonality", "||A'A - I||")]
_LINES = [Line(name, (label,), method=label) for name, label in _SCHEMES.items()]
_NOTES = ["32 x 32 at density 0.125: the paper does not say its size and density."]


def experiments(*, smoke: bool = False) -> list[Experiment]:
    """Return a picture of each scheme."""
    return list(_all(smoke).values())


def render(rows: list[dict[str, Any]], *, smoke: bool = False) -> Rendered:
    """Return the masks, the first seed's, and how orthogonal their matrices are."""
    index, found = RowIndex(rows), _all(smoke)
    pictures = [_picture(label, row) for name, label in _SCHEMES.items() for row in index.rows(found[name])[0][:1]]
    measured = index.metrics(found, _COLUMNS)
    table = table_of("The matrices", _COLUMNS, _LINES, measured, heads=("scheme",), better=None)
    return Rendered([table], pictures=pictures, notes=_NOTES)


def _all(smoke: bool) -> dict[str, Experiment]:
    return {name: MaskPicture(name, size=8, density=0.25) if smoke else MaskPicture(name) for name in _SCHEMES}


def _picture(label: str, row: dict[str, Any]) -> Picture:
    mask = np.array(row["curves"]["mask"]).reshape(-1, row["metrics"]["columns"])
    return Picture(
        label, picture_of(mask, mask), f"{row['metrics']['count']} of {mask.size} entries, seed {row['seed']}"
    )
