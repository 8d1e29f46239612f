"""What a set of images is to the rest of the lab: pictures, labels, and how they are to be fed."""

from dataclasses import dataclass, replace
from pathlib import Path

import torch


@dataclass(frozen=True)
class Normalisation:
    """``(pixel / unit - mean) / std``, one mean and std a channel."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    unit: float = 255.0


@dataclass(frozen=True)
class Augmentation:
    """What happens to a training image, in this order.

    Attributes:
        resized_crop: a random part of 8 to 100 % of the area, scaled to the set's size (files only).
        pad: pixels added on each side before a random crop back to the old size.
        pad_mode: ``reflect`` or ``zero`` (black).
        hue, saturation: the largest change of either, in random order; a change of 1 is a full turn of the hue.
        flip: left and right are swapped for every other image.
        rotation: the largest angle in degrees, nearest pixel, black corners.
    """

    resized_crop: bool = False
    pad: int = 0
    pad_mode: str = "reflect"
    hue: float = 0.0
    saturation: float = 0.0
    flip: bool = False
    rotation: float = 0.0

    def __post_init__(self) -> None:
        if self.pad_mode not in ("reflect", "zero"):
            raise ValueError(f"pad_mode: expected reflect or zero; got {self.pad_mode!r}")
        for name in ("pad", "hue", "saturation", "rotation"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}: expected at least 0; got {getattr(self, name)}")


@dataclass(frozen=True)
class Files:
    """Images that stay on the disk until a batch needs them, `size` pixels square once decoded."""

    paths: tuple[Path, ...]
    size: int

    def __len__(self) -> int:
        return len(self.paths)


@dataclass(frozen=True, eq=False)
class Split:
    """Images (uint8 ``[N, C, H, W]``, or `Files`), their labels (int64 ``[N]``) and their normalisation."""

    images: torch.Tensor | Files
    labels: torch.Tensor
    normalisation: Normalisation

    def __post_init__(self) -> None:
        if len(self.images) != len(self.labels):
            raise ValueError(f"labels: expected one for each of {len(self.images)} images; got {len(self.labels)}")

    def __len__(self) -> int:
        return len(self.labels)

    def to(self, device: torch.device | str) -> "Split":
        """Return the split with its tensors on `device`."""
        images = self.images if isinstance(self.images, Files) else self.images.to(device)
        return replace(self, images=images, labels=self.labels.to(device))

    def part(self, start: int, stop: int) -> "Split":
        """Return samples `start` up to `stop`, in the order of the files; no copy of the pixels."""
        images = self.images
        cut = replace(images, paths=images.paths[start:stop]) if isinstance(images, Files) else images[start:stop]
        return replace(self, images=cut, labels=self.labels[start:stop])


@dataclass(frozen=True, eq=False)
class Dataset:
    """A named set: its splits, and what a model and a loader need to know of it.

    Attributes:
        validation: None when nothing was held out.
        augmentation: what the paper does to training images of this set; None where it does nothing.
    """

    name: str
    train: Split
    validation: Split | None
    test: Split
    classes: int
    augmentation: Augmentation | None = None

    @property
    def in_shape(self) -> tuple[int, int, int]:
        """(channels, height, width) of an image, as `models.build` takes it."""
        images = self.train.images
        if isinstance(images, Files):
            return (3, images.size, images.size)
        channels, height, width = images.shape[1:]
        return (channels, height, width)

    @property
    def normalisation(self) -> Normalisation:
        """The one of every split."""
        return self.train.normalisation

    def to(self, device: torch.device | str) -> "Dataset":
        """Return the set with its tensors on `device`."""
        held = None if self.validation is None else self.validation.to(device)
        return replace(self, train=self.train.to(device), validation=held, test=self.test.to(device))


def hold_out(train: Split, validation: bool) -> tuple[Split, Split | None]:
    """Return the first 90 % of `train` and the last 10 % by index, or all of it and None.

    Not seeded: every run holds out the same samples. Validation images are never augmented. Of fewer than ten samples
    none is held out.
    """
    kept = len(train) - len(train) // 10
    if not validation or kept == len(train):
        return train, None
    return train.part(0, kept), train.part(kept, len(train))
