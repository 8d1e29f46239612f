"""Sparse orthogonal matrices of which whole units, larger than an entry, are active or not."""

import torch

from orthosparse.givens import sample_blocks
from orthosparse.haar import haar
from orthosparse.init import counts
from orthosparse.init.alignment import aligned_order, goal_of, permute
from orthosparse.masks import resize_towards
from orthosparse.randomness import derive, draw_seed
from orthosparse.structures import ENTRIES, TWO_OF_FOUR, block_of, fitting, means_of, tiled, two_of_four


def half_matrix(
    shape: tuple[int, int],
    *,
    density: float | None,
    count: int | None,
    generator: torch.Generator | None,
    dtype: torch.dtype,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return an orthogonal matrix with two of any aligned four entries along rows and columns, and its mask.

    Two of every four rows and of every four columns are chosen; a Haar-random orthogonal matrix lies on those, another
    one on the others.

    Raises:
        ValueError: four does not divide both sides, or another density than 0.5.
    """
    if fitting(TWO_OF_FOUR, shape) != TWO_OF_FOUR:
        raise ValueError(f"structure: '2:4' expects sides that four divides; got {shape[0]} x {shape[1]}")
    size = shape[0] * shape[1]
    if 2 * counts.requested(density, count, size) != size:
        came = f"count: got {count}" if density is None else f"density: got {density!r}"
        raise ValueError(f"{came}; expected {size // 2} entries, a density of 0.5, with structure '2:4'")
    seed = draw_seed(generator)
    rows, cols = two_of_four(shape, derive(seed, "fours"))
    values = torch.zeros(shape, dtype=torch.float64, device="cpu")
    halves = haar(2, shape[0] // 2, shape[1] // 2, generator=derive(seed, "halves"))
    for half, chosen in zip(halves, (True, False), strict=True):
        row, col = ((side == chosen).nonzero().squeeze(1) for side in (rows, cols))
        values[row.unsqueeze(1), col] = half
    return values.to(dtype), rows[:, None] == cols


def block_matrix(
    shape: tuple[int, int],
    structure: str,
    *,
    density: float | None,
    count: int | None,
    stop: str,
    start: str,
    floor: str,
    align: torch.Tensor | None,
    core: float | None,
    generator: torch.Generator | None,
    dtype: torch.dtype,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return an orthogonal matrix of whole blocks and its mask; a partial isometry where too few blocks are asked for.

    The mask or scores of `align` are those of blocks by their means; `core` is a share of the blocks.

    Raises:
        ValueError: the blocks do not divide the sides, or are too few for orthogonality and that is to be refused.
    """
    block, fits = block_of(structure), fitting(structure, shape)
    if fits != structure:
        instead = f"expected {fits!r}, the largest that does" if fits != ENTRIES else "expected 'entries'"
        raise ValueError(f"structure: {structure!r} does not divide {shape[0]} x {shape[1]}; {instead}")
    least = min(shape) * block
    total = counts.resolve(density, count, least, shape[0] * shape[1], floor=floor, block=block)
    number, fewest = total // block**2, least // block**2
    inside = counts.core_of(number, fewest, shape[0] * shape[1] // block**2, core)
    goal = None if align is None else goal_of(means_of(align.double().cpu(), block), number)
    values, grid = sample_blocks(shape, inside, block, stop=stop, start=start, generator=generator, dtype=dtype)
    if goal is not None:
        rows, cols = aligned_order(grid, goal)
        grid, values = permute(grid, rows, cols), permute(values, _within(rows, block), _within(cols, block))
    if number != inside:
        wanted = number if number < fewest else max(number, int(grid.sum()))
        grid = resize_towards(grid, wanted, goal, generator=derive(draw_seed(generator), "kept"))
    mask = tiled(grid, block, shape)
    return values * mask if number < fewest else values, mask


def _within(order: torch.Tensor, block: int) -> torch.Tensor:
    """Return the order of the rows (columns) in blocks of that order."""
    return (block * order.unsqueeze(1) + torch.arange(block, device=order.device)).flatten()
