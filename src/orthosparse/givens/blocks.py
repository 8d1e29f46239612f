"""Algorithm 1 on blocks: exactly orthogonal matrices of which whole square blocks are active or not.

A matrix starts with Haar-random blocks on a diagonal of the grid, and a rotation of two columns of blocks is a
Haar-random orthogonal matrix of twice their side.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from orthosparse.aliases import StartName, StopName
from orthosparse.checks import check_at_least, check_count, check_dtype
from orthosparse.givens.task import make_task
from orthosparse.hardware import on_threads
from orthosparse.randomness import derive, draw_seed, haar

if TYPE_CHECKING:
    from orthosparse.givens.block_plan import BlockPlan

_CHUNK = 64  # rotations that are drawn at once; another number would change the matrices


def sample_blocks(
    shape: tuple[int, int],
    count: int,
    block: int,
    *,
    stop: StopName | str = "exact",
    start: StartName | str = "identity",
    generator: torch.Generator | None = None,
    dtype: torch.dtype = torch.float64,
) -> tuple[Tensor, Tensor]:
    """Return an orthogonal matrix with `count` active blocks of `block` x `block` entries, and the mask of blocks.

    `block` must divide both sides of `shape`, and `count` must be at least the number of blocks along the shorter side.
    The mask has one entry per block, ``[rows / block, cols / block]``. `stop`, `start`, `generator` and `dtype` are
    those of `sample`. The bits depend neither on the number of threads nor, before the cast, on `dtype`.

    Raises:
        TypeError, ValueError: an argument is invalid.

    Example:
        >>> weight, grid = sample_blocks((64, 96), 9, 16, generator=torch.Generator().manual_seed(0))
        >>> int(grid.sum()), int((weight != 0).sum())
        (9, 2304)
        >>> torch.allclose(weight @ weight.T, torch.eye(64, dtype=torch.float64), atol=1e-12)
        True
    """
    make_task(shape)  # checks the shape
    side = check_at_least(block, 1, "block")
    if shape[0] % side or shape[1] % side:
        raise ValueError(f"block: expected a divisor of both sides of {shape[0]} x {shape[1]}; got {side}")
    sides = shape[0] // side, shape[1] // side
    task = make_task(sides, stop=stop, start=start)
    total = check_count(count, sides, floor=task.height, ceiling=sides[0] * sides[1])
    check_dtype(dtype)
    seed = draw_seed(generator)
    from orthosparse.givens.block_plan import plan_blocks  # not needed for entries

    made = plan_blocks(task, total, seed)
    blocks = _rotated(made, side, seed)
    values = torch.from_numpy(np.zeros(shape, dtype=np.float32 if dtype != torch.float64 else np.float64))
    grid = values.view(sides[0], side, sides[1], side).transpose(1, 2)
    for column, row, each in zip(*np.nonzero(made.active), blocks, strict=True):  # thirty times faster than index_put_
        if task.tall:
            grid[column, row] = each.T
        else:
            grid[row, column] = each
    mask = torch.from_numpy(made.active if task.tall else np.ascontiguousarray(made.active.T))
    return values.to(dtype), mask


def _rotated(made: "BlockPlan", side: int, seed: int) -> Tensor:
    """Return the active blocks [number, side, side], column by column of the wide grid."""
    slots = np.cumsum(made.active).reshape(made.active.shape) - 1  # index of each block that will be active
    filled = np.zeros_like(made.active)  # blocks that are active so far
    filled[made.start, np.arange(len(made.start))] = True
    blocks = torch.zeros(int(made.active.sum()), side, side, dtype=torch.float64, device="cpu")
    blocks[slots[filled.nonzero()]] = haar(len(made.start), side, side, generator=derive(seed, "start"))
    draws = _rotations(len(made.pairs), 2 * side, derive(seed, "rotations"))
    with on_threads(1):
        for (i, j), rotation in zip(made.pairs, draws, strict=True):
            rows = np.flatnonzero(filled[i] | filled[j])
            filled[i, rows] = filled[j, rows] = True
            left, right = torch.from_numpy(slots[i, rows]), torch.from_numpy(slots[j, rows])
            pair = torch.cat([blocks[left], blocks[right]], dim=2) @ rotation
            blocks[left], blocks[right] = pair[..., :side], pair[..., side:]
    return blocks


def _rotations(number: int, size: int, generator: torch.Generator) -> Iterator[Any]:
    """Yield Haar-random orthogonal matrices."""
    for first in range(0, number, _CHUNK):
        yield from haar(min(_CHUNK, number - first), size, size, generator=generator)
