"""Batches of a split, augmented, epoch by epoch: the same on every device, from any step and on any number of ranks."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from orthosparse.lab.data._splits import Augmentation, Files, Split
from orthosparse.lab.data._tint import tint
from orthosparse.randomness import derive


@dataclass(frozen=True, eq=False)
class Plan:
    """Where the samples of an epoch (or of a slice of it) come from and what happens to them, in order of position.

    Attributes:
        moves: int64 ``[N, 4]``: index of the sample, top and left of the crop, 1 where flipped.
        tints: float32 ``[N, 4]``: angle in radians, turn of the hue, factor of the saturation, 1 where saturation
            comes before hue; None when nothing asks for it.
    """

    moves: torch.Tensor
    tints: torch.Tensor | None = None

    def __getitem__(self, rows: slice) -> "Plan":
        return Plan(self.moves[rows], None if self.tints is None else self.tints[rows])

    def to(self, device: torch.device) -> "Plan":
        """Return the plan on `device`, copied without waiting."""
        move = self.moves.to(device, non_blocking=True)
        return Plan(move, None if self.tints is None else self.tints.to(device, non_blocking=True))


def draw_plan(samples: int, augmentation: Augmentation | None, *, seed: int, augment_seed: int, epoch: int) -> Plan:
    """Return the plan of a shuffled epoch; it depends on the seeds, the epoch and the augmentation alone.

    Drawn on the CPU as a whole, so that any device, any first step and any number of ranks see the same samples.
    """
    moves = torch.zeros(samples, 4, dtype=torch.int64)
    moves[:, 0] = torch.randperm(samples, generator=derive(seed, "order", epoch))
    if augmentation is None:
        return Plan(moves)
    crop, flip, tint = (derive(augment_seed, purpose, epoch) for purpose in ("crop", "flip", "tint"))
    moves[:, 1:3] = torch.randint(2 * augmentation.pad + 1, (samples, 2), generator=crop)
    if augmentation.flip:
        moves[:, 3] = torch.randint(2, (samples,), generator=flip)
    if not (augmentation.rotation or augmentation.hue or augmentation.saturation):
        return Plan(moves)
    signed = torch.rand(samples, 4, generator=tint) * 2 - 1
    spans = torch.tensor([math.radians(augmentation.rotation), augmentation.hue, augmentation.saturation, 1.0])
    tints = signed * spans
    tints[:, 2] += 1
    tints[:, 3] = (signed[:, 3] > 0).float()
    return Plan(moves, tints)


def gather(images: torch.Tensor, plan: Plan, augmentation: Augmentation | None) -> torch.Tensor:
    """Return the planned uint8 (or, tinted, float) pixels ``[B, C, H, W]``."""
    chosen = images.index_select(0, plan.moves[:, 0])
    if augmentation is None:
        return chosen
    height, width = images.shape[-2:]
    rows, columns, black = _sources(plan, augmentation, height, width, images.device)
    indices = (rows * width + columns).flatten(2).expand(-1, images.shape[1], -1)
    pixels = chosen.flatten(2).gather(2, indices).view_as(chosen)
    if black is not None:
        pixels = pixels.masked_fill(black, 0)
    if plan.tints is not None and (augmentation.hue or augmentation.saturation):
        return tint(pixels, plan.tints[:, 1], plan.tints[:, 2], plan.tints[:, 3])
    return pixels


def _sources(
    plan: Plan, augmentation: Augmentation, height: int, width: int, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Return the row and the column in the stored image of every output pixel, and which pixels lie outside of it."""
    rows = torch.arange(height, device=device).view(1, 1, -1, 1)
    columns = torch.arange(width, device=device).view(1, 1, 1, -1)
    top, left, flip = (plan.moves[:, item].view(-1, 1, 1, 1) for item in (1, 2, 3))
    black = None
    if augmentation.rotation and plan.tints is not None:
        rows, columns, black = _rotated(rows, columns, plan.tints[:, 0].view(-1, 1, 1, 1))
    # Undo the steps from the last to the first: rotation, flip, crop, padding.
    columns = columns + flip * (width - 1 - 2 * columns)
    rows, columns = rows + top - augmentation.pad, columns + left - augmentation.pad
    if augmentation.pad_mode == "reflect":
        return _reflect(rows, height), _reflect(columns, width), black
    outside = (rows < 0) | (rows >= height) | (columns < 0) | (columns >= width)
    black = outside if black is None else black | outside
    return rows.clamp(0, height - 1), columns.clamp(0, width - 1), black


def _reflect(position: torch.Tensor, side: int) -> torch.Tensor:
    """Mirror positions at the first and the last pixel, which are not repeated."""
    return (side - 1) - ((side - 1) - position.abs()).abs()


def _rotated(
    rows: torch.Tensor, columns: torch.Tensor, angle: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the nearest pixel that a turn by `angle`, counter-clockwise about the centre, puts at each position."""
    height, width = rows.shape[-2], columns.shape[-1]
    # float64: the floor of a coordinate must not depend on the device's rounding of a sine.
    cosine, sine = torch.cos(angle.double()), torch.sin(angle.double())
    down, right = rows + (1 - height) / 2, columns + (1 - width) / 2
    row = torch.floor(cosine * down + sine * right + height / 2).long()
    column = torch.floor(cosine * right - sine * down + width / 2).long()
    black = (row < 0) | (row >= height) | (column < 0) | (column >= width)
    return row.clamp(0, height - 1), column.clamp(0, width - 1), black


class Loader:
    """Serves a split in batches, normalised and, when training, shuffled and augmented.

    What position p of epoch e holds depends on the seeds, e and p alone. A global batch is a run of `batch` positions;
    each of `world` ranks takes every world-th of them, so that all ranks together see what one would see alone.

    Args:
        batch: samples in a global batch, over all ranks.
        train: shuffle and augment; otherwise the files' order as it is.
        recipe: what happens to training images; None is nothing.
        seed: of the order of the samples.
        augment_seed: of crops, flips and the like; None takes `seed`.
        device: where the batches are wanted; the images are moved there once.
        workers: processes that decode `Files`.
    """

    def __init__(
        self,
        split: Split,
        *,
        batch: int = 128,
        train: bool = True,
        recipe: Augmentation | None = None,
        seed: int = 0,
        augment_seed: int | None = None,
        device: torch.device | str = "cpu",
        rank: int = 0,
        world: int = 1,
        workers: int = 4,
    ) -> None:
        _check(split, batch, rank, world, recipe)
        self.device = torch.device(device)
        self.split = split.to(self.device)
        self.batch, self.rank, self.world, self.workers = batch, rank, world, workers
        self.train, self.recipe = train, recipe if train else None
        self.seed, self.augment_seed = seed, seed if augment_seed is None else augment_seed
        scale = [1 / (split.normalisation.unit * std) for std in split.normalisation.std]
        shift = [-mean / std for mean, std in zip(split.normalisation.mean, split.normalisation.std, strict=True)]
        self._scale = torch.tensor(scale, device=self.device).view(1, -1, 1, 1)
        self._shift = torch.tensor(shift, device=self.device).view(1, -1, 1, 1)
        self._plan: tuple[int, Plan] | None = None

    def __len__(self) -> int:
        """Return the batches in an epoch."""
        return -(-len(self.split) // self.batch)

    def count(self, step: int) -> int:
        """Return the samples in global batch `step`, over all ranks: what a mean over it divides by."""
        self._check_step(step)
        return min(self.batch, len(self.split) - step * self.batch)

    def plan(self, epoch: int) -> Plan:
        """Return where all samples of `epoch` come from, on the device; the last one asked for is kept."""
        if self._plan is None or self._plan[0] != (epoch if self.train else 0):
            self._plan = (epoch if self.train else 0, self._drawn(epoch).to(self.device))
        return self._plan[1]

    def share(self, epoch: int, step: int) -> Plan:
        """Return this rank's part of batch `step`; its tensors can be copied into static ones for a captured graph."""
        stop = step * self.batch + self.count(step)
        return self.plan(epoch)[step * self.batch + self.rank : stop : self.world]

    def gather(self, share: Plan) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (float32 images, labels) of a share. No step of it waits for the device, so a graph may hold it."""
        if isinstance(self.split.images, Files):
            raise TypeError("gather: expected images in memory; files are decoded by epoch() alone")
        return self._normalise(gather(self.split.images, share, self.recipe)), self.split.labels[share.moves[:, 0]]

    def epoch(self, epoch: int, start: int = 0) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield this rank's (float32 images, int64 labels) of every batch from step `start` on."""
        if not 0 <= start <= len(self):
            raise ValueError(f"start: expected a step from 0 to {len(self)}; got {start}")
        if isinstance(self.split.images, Files):
            yield from self._decoded(self.split.images, epoch, start)
        else:
            for step in range(start, len(self)):
                yield self.gather(self.share(epoch, step))

    def _decoded(self, files: Files, epoch: int, start: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        steps = [range(step * self.batch, step * self.batch + self.count(step)) for step in range(start, len(self))]
        order = self._drawn(epoch).moves[:, 0]
        samples = [[(position, int(order[position])) for position in step[self.rank :: self.world]] for step in steps]
        from orthosparse.lab.data._files import stream  # for images in files alone

        decoded = stream(
            files,
            samples,
            self.recipe,
            seed=self.augment_seed,
            epoch=epoch,
            workers=self.workers,
            pin=self.device.type == "cuda",
        )
        for sample, pixels in zip(samples, decoded, strict=True):
            chosen = torch.tensor([index for _, index in sample], device=self.device)
            yield self._normalise(pixels.to(self.device, non_blocking=True)), self.split.labels[chosen]

    def _drawn(self, epoch: int) -> Plan:
        if not self.train:
            moves = torch.zeros(len(self.split), 4, dtype=torch.int64)
            moves[:, 0] = torch.arange(len(self.split))
            return Plan(moves)
        recipe = None if isinstance(self.split.images, Files) else self.recipe
        return draw_plan(len(self.split), recipe, seed=self.seed, augment_seed=self.augment_seed, epoch=epoch)

    def _normalise(self, pixels: torch.Tensor) -> torch.Tensor:
        # A product and a sum, each rounded: the same bits on every device.
        return torch.mul(pixels, self._scale).add_(self._shift)

    def _check_step(self, step: int) -> None:
        if not 0 <= step < len(self):
            raise ValueError(f"step: expected one from 0 to {len(self) - 1}; got {step}")


def _check(split: Split, batch: int, rank: int, world: int, recipe: Augmentation | None) -> None:
    if world < 1 or batch < 1 or batch % world:
        raise ValueError(f"batch: expected a multiple of world ({world}), all ranks together; got {batch}")
    if not 0 <= rank < world:
        raise ValueError(f"rank: expected one from 0 to {world - 1}; got {rank}")
    if recipe is None:
        return
    if isinstance(split.images, Files):
        if recipe.pad or recipe.hue or recipe.saturation or recipe.rotation:
            raise ValueError("recipe: expected resized_crop and flip alone for images in files")
    elif recipe.resized_crop:
        raise ValueError("recipe: expected no resized_crop for images in memory")
    elif recipe.pad_mode == "reflect" and recipe.pad >= min(split.images.shape[-2:]):
        raise ValueError(f"recipe: expected a reflected pad below the image's side; got {recipe.pad}")
