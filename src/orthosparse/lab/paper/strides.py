"""Through strides: a vision transformer from patches read by one tap, and from patches read whole. A study of ours."""

from typing import Any

from orthosparse.lab.experiments import Experiment
from orthosparse.lab.experiments.training import Training
from orthosparse.lab.paper._contents import Column, Line, Place, Rendered
from orthosparse.lab.paper._rows import RowIndex
from orthosparse.lab.paper._study import tiny, unique
from orthosparse.lab.paper._tables import table_of

__all__ = ["SEEDS", "TITLE", "experiments", "render"]

TITLE = "A vision transformer on CIFAR-10 from strided and from tiled patches"
SEEDS = (1, 2, 3)
_MODEL = "timm:vit_tiny_patch16_224"
_SHAPE = {"img_size": 32, "patch_size": 4}
_DENSITIES = (0.1, 0.2)
_STARTS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "base": ("Base", "base", {}),
    "delta": ("EOI, one tap", "eoi", {}),
    "tile": ("EOI, tiles", "eoi", {"strided": "tile"}),
}
# DeiT's recipe in a schedule that fits 45,000 images: AdamW, cosine, no mixing of images.
_RECIPE: dict[str, Any] = {
    "recipe": "deit3_small",
    "epochs": 60,
    "batch": 256,
    "lr": 5e-4,
    "optimizer": "adamw",
    "loss": "cross_entropy",
    "mixup": 0.0,
    "cutmix": 0.0,
}
_NOTES = [
    "Not in the paper. Patches are 4 x 4 pixels: one tap reads one pixel of 16, and the embedding has rank 3 of 48.",
    "ERK, the same recipe for all: 60 epochs of AdamW with a cosine schedule.",
]


def experiments(*, smoke: bool = False) -> list[Experiment]:
    """Return the trainings, density after density."""
    return unique([*_cells(smoke).values()])


def render(rows: list[dict[str, Any]], *, smoke: bool = False) -> Rendered:
    """Return the table of accuracies."""
    columns = [Column(f"{density:g}", f"density {density:.0%}", "ViT") for density in _DENSITIES]
    lines = [Line(key, ("ERK", label), block="erk", method=f"ERK|{label}") for key, (label, _, _) in _STARTS.items()]
    return Rendered(tables=[table_of(TITLE, columns, lines, RowIndex(rows).accuracies(_cells(smoke)))], notes=_NOTES)


def _cells(smoke: bool) -> dict[Place, Experiment]:
    return {
        (key, f"{density:g}"): _training(scheme, options, density, smoke)
        for density in (_DENSITIES[:1] if smoke else _DENSITIES)
        for key, (_, scheme, options) in _STARTS.items()
    }


def _training(scheme: str, options: dict[str, Any], density: float, smoke: bool) -> Experiment:
    own: dict[str, Any] = {"options": options} if options else {}
    if smoke:
        return tiny(f"erk/{scheme}", density=3 * density, **own)
    return Training(_MODEL, "cifar10", density, "erk", scheme, model_options=_SHAPE, **_RECIPE, **own)
