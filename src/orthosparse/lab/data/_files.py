"""Images that are decoded when a batch needs them: scaled, cropped and flipped by Pillow in worker processes."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from orthosparse.lab.data._splits import Augmentation, Files
from orthosparse.randomness import derive

Box = tuple[float, float, float, float]


def read_image(path: Path) -> Image.Image:
    """Return the decoded RGB image.

    Raises:
        ValueError: the file cannot be decoded, or has a single channel of more than 8 bits, which Pillow would clip.
    """
    try:
        with Image.open(path) as image:
            mode, pixels = image.mode, image.convert("RGB")
    except FileNotFoundError:
        raise
    except (OSError, SyntaxError, ValueError) as error:
        raise ValueError(f"{path}: expected an image; it cannot be decoded ({error})") from error
    if mode[0] in "IF":  # Pillow clips these at 255
        raise ValueError(f"{path}: expected an image of 8 bits per channel; got the mode {mode}")
    return pixels


def to_tensor(image: Image.Image) -> torch.Tensor:
    """Return the pixels as uint8 ``[3, H, W]``."""
    width, height = image.size
    return torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8).view(height, width, 3).permute(2, 0, 1)


def random_box(width: int, height: int, generator: torch.Generator) -> Box:
    """Return a random part of an image: 8 to 100 % of its area, sides 3:4 to 4:3; the middle after ten misses."""
    draws = torch.rand(10, 4, generator=generator, dtype=torch.float64).tolist()
    for share, shape, across, down in draws:
        area = width * height * (0.08 + 0.92 * share)
        ratio = math.exp(math.log(3 / 4) + shape * (math.log(4 / 3) - math.log(3 / 4)))
        wide, high = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < wide <= width and 0 < high <= height:
            left, top = int(across * (width - wide + 1)), int(down * (height - high + 1))
            return (left, top, left + wide, top + high)
    across, down = min(width, height * 4 / 3) / 2, min(height, width * 4 / 3) / 2
    return (width / 2 - across, height / 2 - down, width / 2 + across, height / 2 + down)


def middle_box(width: int, height: int, size: int) -> Box:
    """Return the part that a crop of `size` out of the middle shows, once the shorter side has 256 / 224 of `size`."""
    side = min(width, height) * size / round(size * 256 / 224)
    return ((width - side) / 2, (height - side) / 2, (width + side) / 2, (height + side) / 2)


class _Decoded(Dataset[torch.Tensor]):
    """The images of one epoch, by (position, index)."""

    def __init__(self, files: Files, augmentation: Augmentation | None, seed: int, epoch: int) -> None:
        self.files, self.augmentation, self.seed, self.epoch = files, augmentation, seed, epoch

    def __getitem__(self, sample: tuple[int, int]) -> torch.Tensor:
        position, index = sample
        image, size = read_image(self.files.paths[index]), self.files.size
        generator = derive(self.seed, "file", self.epoch, position)
        augmentation = self.augmentation or Augmentation()
        width, height = image.size
        box = random_box(width, height, generator) if augmentation.resized_crop else middle_box(width, height, size)
        image = image.resize((size, size), Image.Resampling.BILINEAR, box=box)
        if augmentation.flip and torch.rand((), generator=generator) < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        return to_tensor(image)


def stream(
    files: Files,
    batches: Sequence[Sequence[tuple[int, int]]],
    augmentation: Augmentation | None,
    *,
    seed: int,
    epoch: int,
    workers: int,
    pin: bool,
) -> Iterator[torch.Tensor]:
    """Yield uint8 batches ``[B, 3, size, size]`` of (position, index) pairs, decoded ahead by `workers` processes."""
    yield from DataLoader(
        _Decoded(files, augmentation, seed, epoch),
        batch_sampler=batches,  # type: ignore[arg-type]
        num_workers=workers,
        pin_memory=pin,
        # Without one the loader would advance the global generator.
        generator=derive(seed, "workers", epoch),
    )
