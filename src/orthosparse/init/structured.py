"""Sparse orthogonal matrices of which whole units, larger than an entry, are active or not."""

import torch

from orthosparse import masks
from orthosparse.givens import sample_blocks
from orthosparse.init import counts
from orthosparse.randomness import derive, draw_seed
from orthosparse.structures import ENTRIES, block_of, fitting, tiled


def block_matrix(
    shape: tuple[int, int],
    structure: str,
    *,
    density: float | None,
    count: int | None,
    stop: str,
    start: str,
    floor: str,
    generator: torch.Generator | None,
    dtype: torch.dtype,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return an orthogonal matrix of whole blocks and its mask; a partial isometry where too few blocks are asked for.

    Raises:
        ValueError: the blocks do not divide the sides, or are too few for orthogonality and that is to be refused.
    """
    block, fits = block_of(structure), fitting(structure, shape)
    if fits != structure:
        instead = f"expected {fits!r}, the largest that does" if fits != ENTRIES else "expected 'entries'"
        raise ValueError(f"structure: {structure!r} does not divide {shape[0]} x {shape[1]}; {instead}")
    least = min(shape) * block
    total = counts.resolve(density, count, least, shape[0] * shape[1], floor=floor, block=block)
    number = max(total, least) // block**2
    values, grid = sample_blocks(shape, number, block, stop=stop, start=start, generator=generator, dtype=dtype)
    if total < least:
        grid = masks.resize(grid, total // block**2, generator=derive(draw_seed(generator), "kept"))
    mask = tiled(grid, block, shape)
    return values * mask if total < least else values, mask
