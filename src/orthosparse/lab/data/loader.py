"""Batches of a split, epoch by epoch: the same ones on every device, from any step and on any number of ranks."""

from collections.abc import Iterator

import torch

from orthosparse.lab.data._gather import Plan, draw_plan, gather
from orthosparse.lab.data._splits import Augmentation, Files, Split


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
        drop_last: leave out a last, shorter batch.
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
        drop_last: bool = False,
        workers: int = 4,
    ) -> None:
        _check(split, batch, rank, world, recipe)
        self.device = torch.device(device)
        self.split = split.to(self.device)
        self.batch, self.rank, self.world, self.drop_last, self.workers = batch, rank, world, drop_last, workers
        self.train, self.recipe = train, recipe if train else None
        self.seed, self.augment_seed = seed, seed if augment_seed is None else augment_seed
        scale = [1 / (split.normalisation.unit * std) for std in split.normalisation.std]
        shift = [-mean / std for mean, std in zip(split.normalisation.mean, split.normalisation.std, strict=True)]
        self._scale = torch.tensor(scale, device=self.device).view(1, -1, 1, 1)
        self._shift = torch.tensor(shift, device=self.device).view(1, -1, 1, 1)
        self._plan: tuple[int, Plan] | None = None

    def __len__(self) -> int:
        """Return the batches in an epoch."""
        whole, rest = divmod(len(self.split), self.batch)
        return whole + bool(rest and not self.drop_last)

    def count(self, step: int) -> int:
        """Return the samples in global batch `step`, over all ranks: what a mean over it divides by."""
        self._check_step(step)
        return min(self.batch, len(self.split) - step * self.batch)

    def plan(self, epoch: int) -> Plan:
        """Return where all samples of `epoch` come from, on the device; the last one asked for is kept."""
        if self._plan is None or self._plan[0] != (epoch if self.train else 0):
            self._plan = (epoch if self.train else 0, self._drawn(epoch).to(self.device))
        return self._plan[1]

    def indices(self, epoch: int) -> torch.Tensor:
        """Return the order of the samples in `epoch`."""
        return self.plan(epoch).moves[:, 0]

    def share(self, epoch: int, step: int) -> Plan:
        """Return this rank's part of batch `step`; its tensors can be copied into static ones for a captured graph."""
        stop = step * self.batch + self.count(step)
        return self.plan(epoch)[step * self.batch + self.rank : stop : self.world]

    def gather(self, share: Plan, out: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (float32 images, labels) of a share. No step of it waits for the device, so a graph may hold it.

        Args:
            out: a float32 tensor that receives the images.
        """
        if isinstance(self.split.images, Files):
            raise TypeError("gather: expected images in memory; files are decoded by epoch() alone")
        return self._normalise(gather(self.split.images, share, self.recipe), out), self.split.labels[share.moves[:, 0]]

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
        places = [[(position, int(order[position])) for position in step[self.rank :: self.world]] for step in steps]
        from orthosparse.lab.data._files import stream  # for images in files alone

        decoded = stream(
            files,
            places,
            self.recipe,
            seed=self.augment_seed,
            epoch=epoch,
            workers=self.workers,
            pin=self.device.type == "cuda",
        )
        for place, pixels in zip(places, decoded, strict=True):
            chosen = torch.tensor([index for _, index in place], device=self.device)
            yield self._normalise(pixels.to(self.device, non_blocking=True)), self.split.labels[chosen]

    def _drawn(self, epoch: int) -> Plan:
        if not self.train:
            moves = torch.zeros(len(self.split), 4, dtype=torch.int64)
            moves[:, 0] = torch.arange(len(self.split))
            return Plan(moves)
        recipe = None if isinstance(self.split.images, Files) else self.recipe
        return draw_plan(len(self.split), recipe, seed=self.seed, augment_seed=self.augment_seed, epoch=epoch)

    def _normalise(self, pixels: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        # A product and a sum, each rounded: the same bits on every device.
        return torch.mul(pixels, self._scale, out=out).add_(self._shift)

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
