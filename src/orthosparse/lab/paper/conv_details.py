"""The two drawings of a sparse orthogonal convolution: the matrix inside the kernel, and the mask around it."""

from typing import Any

import numpy as np

from orthosparse.lab.experiments import Experiment
from orthosparse.lab.experiments.conv_picture import ConvPicture
from orthosparse.lab.paper._rows import RowIndex
from orthosparse.lab.paper._tables import Rendered
from orthosparse.lab.rendering.contents import Picture
from orthosparse.lab.rendering.pictures import picture_of

TITLE = "EOI of a convolution, entry by entry"
SEEDS = (1,)
_NOTES = [
    "4 x 4 kernels of 3 x 3 at density 0.25, H at its square root; dark: non-zero weights, pale: free entries that "
    "start at zero. The paper's drawings are schematic.",
]


def experiments(*, smoke: bool = False) -> list[Experiment]:
    """Return one kernel."""
    return [ConvPicture(2, 2) if smoke else ConvPicture()]


def render(rows: list[dict[str, Any]], *, smoke: bool = False) -> Rendered:
    """Return the kernel with its matrix alone, and with the mask that the training gets."""
    (experiment,) = experiments(smoke=smoke)
    pictures: list[Picture] = []
    for row in RowIndex(rows).rows(experiment)[0][:1]:
        full, mask = _laid_out(row, "weights") != 0, _laid_out(row, "mask")
        count, center, side = (row["metrics"][name] for name in ("count", "center_count", "side"))
        embedded = picture_of(full, full, every=side)
        final = picture_of(full, mask, every=side)
        free = f"{count} active entries, {count - center} of them free and zero"
        pictures += [
            Picture("The matrix H in the centres of the kernels", embedded, f"{center} non-zero weights"),
            Picture("The mask", final, free),
        ]
    return Rendered(pictures=pictures, notes=_NOTES)


def _laid_out(row: dict[str, Any], name: str) -> np.ndarray:
    """Return a tensor [outputs, inputs, side, side] as a matrix of kernels."""
    outputs, inputs, side = (row["metrics"][each] for each in ("outputs", "inputs", "side"))
    kernels = np.array(row["curves"][name]).reshape(outputs, inputs, side, side)
    return kernels.transpose(0, 2, 1, 3).reshape(outputs * side, inputs * side)
