"""Through strides: a vision transformer from patches read by one tap, and from patches read whole. A study of ours."""

from typing import Any

from orthosparse.lab.paper._study import Accuracies
from orthosparse.lab.paper._tables import Column, Line

__all__ = ["SEEDS", "TITLE", "experiments", "render"]

TITLE = "A vision transformer on CIFAR-10 from strided and from tiled patches"
SEEDS = (1, 2, 3)
_COLUMNS = [
    Column(f"{density:g}", f"density {density:.0%}", "ViT", fields={"density": density}) for density in (0.1, 0.2)
]
_STARTS: dict[str, tuple[str, dict[str, Any]]] = {
    "base": ("Base", {"scheme": "base"}),
    "delta": ("EOI, one tap", {}),
    "tile": ("EOI, tiles", {"options": {"strided": "tile"}}),
}
_LINES = [
    Line(key, ("ERK", label), block="erk", method=f"ERK|{label}", fields=fields)
    for key, (label, fields) in _STARTS.items()
]
# DeiT's recipe in a schedule that fits 45,000 images: AdamW, cosine, no mixing of images.
_FIELDS: dict[str, Any] = {
    "model": "timm:vit_tiny_patch16_224",
    "model_options": {"img_size": 32, "patch_size": 4},
    "data": "cifar10",
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
_TABLE = Accuracies(TITLE, _COLUMNS, _LINES, _FIELDS, tiny=_STARTS, small={"0.1": {}}, notes=_NOTES)
experiments, render = _TABLE.experiments, _TABLE.render
