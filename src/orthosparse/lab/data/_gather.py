"""Batches out of images that lie on the device: crop, flip and rotation in one gather, then tint and normalise."""

import math
from dataclasses import dataclass

import torch

from orthosparse.lab.data._splits import Augmentation
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
    places = (rows * width + columns).flatten(2).expand(-1, images.shape[1], -1)
    pixels = chosen.flatten(2).gather(2, places).view_as(chosen)
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
