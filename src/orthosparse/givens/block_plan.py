"""Choose the active blocks of a block-orthogonal matrix, and the columns of blocks that are rotated."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from orthosparse.givens import stream
from orthosparse.givens.plan import BITS, add_entries, columns_at, grow, start_of
from orthosparse.givens.python_backend import active_entries
from orthosparse.givens.task import STOPS, Task
from orthosparse.randomness import derive


class BlockPlan(NamedTuple):
    """The column of each row's block at the start, the pairs of columns that are rotated, and the blocks then active.

    The last is ``[width, height]`` and includes blocks that have no value.
    """

    start: list[int]
    pairs: list[tuple[int, int]]
    active: npt.NDArray[np.bool_]


def plan_blocks(task: Task, count: int, seed: int) -> BlockPlan:
    """Draw the rotations that give a grid `count` active blocks, by the rules of the Givens sampler.

    Empty columns of the grid are rotated with others first, as far as the count allows. Otherwise the sampler would
    leave some of them empty, and the layer would not use a whole block of inputs (of outputs, if tall).
    """
    start, _ = start_of(task, seed, 0)
    columns = columns_at(task, start, BITS)
    pairs = _spread(start, task.width, count - task.height, seed)
    for full, empty in pairs:
        columns[empty] = columns[full]
    steps = grow(columns, task, count, stream.stream_key(seed, 0, stream.ROTATIONS), BITS)
    missing = count - task.height - len(pairs) - sum(steps.gain) if task.stop == STOPS["exact"] else 0
    add_entries(columns, task.height, missing, stream.stream_key(seed, 0, stream.EXTRA), BITS)
    active = active_entries(task._replace(tall=True), columns)
    return BlockPlan(start, [*pairs, *zip(steps.i, steps.j, strict=True)], active)


def _spread(start: list[int], width: int, room: int, seed: int) -> list[tuple[int, int]]:
    """Return at most `room` pairs of a column with a block and an empty one, cycling through those with blocks."""
    generator, taken = derive(seed, "spread"), set(start)
    empty = [column for column in range(width) if column not in taken]
    order = torch.randperm(len(empty), generator=generator, device="cpu").tolist()
    turns = torch.randperm(len(start), generator=generator, device="cpu").tolist()
    return [(start[turns[k % len(start)]], empty[which]) for k, which in enumerate(order[:room])]
