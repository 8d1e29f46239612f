"""The two drawings of a sparse orthogonal convolution: the matrix inside the kernel, and the mask around it."""

from typing import Any

from orthosparse.lab.experiments import ConvPicture, Experiment
from orthosparse.lab.paper._book import Book
from orthosparse.lab.paper._rendered import Picture, Rendered

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
    for row in Book(rows).rows(experiment)[0][:1]:
        weights, mask = _laid_out(row, "weights"), _laid_out(row, "mask")
        embedded = tuple(tuple(int(value != 0) for value in line) for line in weights)
        final = tuple(
            tuple(int(kept) and (1 if value else 2) for kept, value in zip(*lines, strict=True))
            for lines in zip(mask, weights, strict=True)
        )
        count, center, side = (row["metrics"][name] for name in ("count", "center_count", "side"))
        pictures += [
            Picture("The matrix H in the centres of the kernels", embedded, f"{center} non-zero weights", side),
            Picture("The mask", final, f"{count} active entries, {count - center} of them free and zero", side),
        ]
    return Rendered(pictures=pictures, notes=_NOTES)


def _laid_out(row: dict[str, Any], name: str) -> list[list[float]]:
    """Return a tensor [outputs, inputs, side, side] as a matrix of kernels."""
    values, of = row["curves"][name], row["metrics"]
    outputs, inputs, side = of["outputs"], of["inputs"], of["side"]
    return [
        [values[((o * inputs + i) * side + p) * side + q] for i in range(inputs) for q in range(side)]
        for o in range(outputs)
        for p in range(side)
    ]
