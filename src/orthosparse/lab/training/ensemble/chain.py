"""Stacked networks from samples to logits and back: runs of equal layers, and pools, one after the other."""

from typing import Any

import torch
from torch import Tensor

from orthosparse.lab.training.ensemble.fused import run_of
from orthosparse.lab.training.ensemble.plain import Run
from orthosparse.lab.training.ensemble.slab import Slab
from orthosparse.lab.training.ensemble.stages import Pool, Stage, as_rows
from orthosparse.lab.training.ensemble.ways import Ways


class Chain:
    """Networks of one shape, one layer of all members after the other.

    Args:
        dtype: in which products are computed; the slabs keep their own.
    """

    def __init__(self, stages: list[Stage | Pool], slabs: list[Slab], dtype: torch.dtype, ways: Ways) -> None:
        self.dtype, self.stages = dtype, stages
        held = iter(slabs)
        self.links: list[Run | _Pooling] = [
            _Pooling(stage) if isinstance(stage, Pool) else run_of(next(held), dtype, ways) for stage in stages
        ]

    def rows(self, images: Tensor) -> Tensor:
        """Return pictures ``[..., C, H, W]`` as rows of numbers, in the order in which the first stage reads them."""
        return as_rows(images, self.stages)

    def logits(self, x: Tensor) -> Tensor:
        """Return the outputs for samples ``[members, batch, features]``, and keep nothing."""
        for link in self.links:
            x = link.through(x)
        return x

    def ahead(self, x: Tensor) -> tuple[Tensor, list[Any]]:
        """Return the outputs, and what the way back needs."""
        kept = []
        for link in self.links:
            x, own = link.ahead(x)
            kept.append(own)
        return x, kept

    def back(self, grad: Tensor, kept: list[Any]) -> None:
        """Fill the gradients of all slabs and their norms; `kept` is emptied on the way."""
        for place in reversed(range(len(self.links))):
            found = self.links[place].back(grad, kept.pop(), first=place == 0)
            if found is not None:
                grad = found


class _Pooling:
    """Means over squares of a map."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.rows, self.columns = pool.height // pool.side, pool.width // pool.side

    def through(self, x: Tensor) -> Tensor:
        side, rows, columns = self.pool.side, self.rows, self.columns
        maps = x.view(*x.shape[:2], self.pool.height, self.pool.width, -1)[:, :, : rows * side, : columns * side]
        return maps.reshape(*x.shape[:2], rows, side, columns, side, -1).mean((3, 5)).flatten(2)

    def ahead(self, x: Tensor) -> tuple[Tensor, None]:
        return self.through(x), None

    def back(self, grad: Tensor, kept: None, *, first: bool) -> Tensor:
        del kept, first  # a mean is linear
        pool, side = self.pool, self.pool.side
        maps = grad.view(*grad.shape[:2], self.rows, 1, self.columns, 1, pool.channels) / side**2
        spread = maps.expand(-1, -1, -1, side, -1, side, -1)
        whole = grad.new_zeros(*grad.shape[:2], pool.height, pool.width, pool.channels)
        inner = whole[:, :, : self.rows * side, : self.columns * side]
        inner.copy_(spread.reshape(inner.shape))
        return whole.flatten(2)
