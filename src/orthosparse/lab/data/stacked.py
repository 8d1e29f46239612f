"""Batches for several networks at once: to each its own samples in its own order, in one gather."""

from collections.abc import Iterator

import torch
from torch import Tensor

from orthosparse.lab.data.loader import Loader, Plan


class StackedLoader:
    """Serves the batches of several loaders of the same split, stacked.

    Args:
        loaders: one for each network; they differ in their seeds alone.
    """

    def __init__(self, loaders: list[Loader]) -> None:
        self.loaders = loaders
        self._plan: tuple[int, Plan] | None = None

    def __len__(self) -> int:
        """Return the batches in an epoch."""
        return len(self.loaders[0])

    @property
    def batch(self) -> int:
        """Samples of a network in a whole batch."""
        return self.loaders[0].batch

    def count(self, step: int) -> int:
        """Return the samples of a network in batch `step`."""
        return self.loaders[0].count(step)

    def epoch(self, epoch: int, start: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield images ``[networks, batch, C, H, W]`` and labels ``[networks, batch]`` from step `start` on."""
        plan = self._whole(epoch)
        for step in range(start, len(self)):
            begin = step * self.batch
            rows = slice(begin, begin + self.count(step))
            tints = None if plan.tints is None else plan.tints[:, rows].flatten(0, 1)
            images, labels = self.loaders[0].gather(Plan(plan.moves[:, rows].flatten(0, 1), tints))
            networks = len(self.loaders)
            yield images.view(networks, -1, *images.shape[1:]), labels.view(networks, -1)

    def _whole(self, epoch: int) -> Plan:
        """Return the plans of an epoch, stacked; the last one asked for is kept."""
        if self._plan is None or self._plan[0] != epoch:
            # Networks of one seed see the same samples: one of them draws for all.
            seeds = [(loader.seed, loader.augment_seed) for loader in self.loaders]
            drawing = dict(zip(seeds, self.loaders, strict=True))
            plans = [drawing[each].plan(epoch) for each in seeds]
            tints = [plan.tints for plan in plans if plan.tints is not None]
            moves = torch.stack([plan.moves for plan in plans])
            self._plan = epoch, Plan(moves, torch.stack(tints) if tints else None)
        return self._plan[1]
