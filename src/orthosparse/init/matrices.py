"""Dense orthogonal matrices, and sparse ones with their masks: of entries, of blocks, or 2:4."""

import math
from typing import Any

import torch

from orthosparse.aliases import StartName, StopName, StructureName, TensorFloorName
from orthosparse.checks import MATRIX, check_align, check_density, check_fillable, check_structure
from orthosparse.counts import count_of, requested, resolve
from orthosparse.distributed import write_
from orthosparse.givens import Law, can_hold, sample, sample_blocks
from orthosparse.init import alignment
from orthosparse.init.alignment import permute
from orthosparse.masks import resize_towards
from orthosparse.randomness import derive, draw_seed, haar
from orthosparse.structures import (
    ENTRIES,
    TWO_OF_FOUR,
    block_of,
    fitting,
    means_of,
    tiled,
    two_of_four,
)


def orthogonal_(weight: torch.Tensor, *, gain: float = 1.0, generator: torch.Generator | None = None) -> torch.Tensor:
    """Fill a matrix with a dense orthogonal one, uniformly distributed (Haar), times `gain`.

    Args:
        generator: the seed is drawn from it; None takes one from the operating system.

    Example:
        >>> weight = orthogonal_(torch.empty(2, 3), generator=torch.Generator().manual_seed(0))
        >>> torch.allclose(weight @ weight.T, torch.eye(2), atol=1e-6)
        True
    """
    scale = check_fillable(weight, MATRIX, gain)
    matrix = haar(1, *weight.shape, generator=derive(draw_seed(generator), "matrix"))[0]
    return write_(weight, matrix * scale)


def sparse_orthogonal_(
    weight: torch.Tensor,
    density: float | None = None,
    *,
    count: int | None = None,
    gain: float = 1.0,
    generator: torch.Generator | None = None,
    stop: StopName | str = "exact",
    angle: float | None = None,
    start: StartName | str = "identity",
    align: torch.Tensor | None = None,
    core: float | None = None,
    floor: TensorFloorName | str = "error",
    structure: StructureName | str = ENTRIES,
    threads: int = 1,
) -> torch.Tensor:
    """Fill a matrix with a sparse orthogonal one, a product of random Givens rotations, and return its mask.

    Except for `gain` and `align`, the entries are those of `givens.sample` with the same generator
    (`givens.sample_blocks` for blocks).

    Args:
        density: fraction of the entries that are active.
        count: number of active entries, instead of `density`.
        gain: factor of the matrix.
        generator: the seed is drawn from it; None takes one from the operating system.
        stop: "exact" meets the count exactly; "closest" and "first" are the paper's rules, which may miss it.
        angle: angle of all rotations, in radians; by default each rotation draws its own.
        start: "identity", or "permuted" for a random signed permutation.
        align: a mask of the weight's shape, or scores whose largest form the mask. Rows and columns are permuted so
            that the active entries lie on the mask as far as possible.
        core: fraction of the active entries that belong to the orthogonal matrix: by default all, and never fewer than
            orthogonality needs. The others start at zero, on the mask of `align` as long as it has room, else anywhere.
        floor: what to do if the count is smaller than min(n, m), which an orthogonal matrix needs. "error" raises an
            error; "partial" gives as many rows as there are entries one unit entry each, in different columns, and
            leaves the rest at zero; "minimal" makes an orthogonal matrix with min(n, m) entries.
        structure: "entries", or "block:64" for whole blocks of 64 x 64 (the size is a power of two from 16 on that
            divides both sides). Densities and floors are then counted in blocks: an orthogonal matrix has at least
            min(n, m) / 64. "2:4" has two of every aligned four entries along rows and along columns. Its density is
            0.5, both sides must be multiples of four, and there are no rotations, no `align` and no `core`.
        threads: number of threads of the compiled kernel; the bits do not depend on it.

    Example:
        >>> weight = torch.empty(4, 4)
        >>> mask = sparse_orthogonal_(weight, density=0.5, generator=torch.Generator().manual_seed(0))
        >>> int(mask.sum()), torch.allclose(weight @ weight.T, torch.eye(4), atol=1e-6)
        (8, True)
    """
    scale = check_fillable(weight, MATRIX, gain)
    shape, dtype = (weight.shape[0], weight.shape[1]), weight.dtype if scale == 1 else torch.float64
    check_align(align, weight)
    asked: dict[str, Any] = {"density": density, "count": count, "floor": floor, "align": align, "core": core}
    check_rotations(check_structure(structure), stop=stop, angle=angle, start=start, align=align, core=core)
    if structure == ENTRIES:
        law = Law(stop=stop, angle=angle, start=start)
        draws: dict[str, Any] = {"generator": generator, "dtype": dtype, "threads": threads, **law}
        draws["out"] = weight.detach() if scale == 1 and can_hold(weight) else None
        values, mask = _entry_matrix(shape, **asked, **draws)
    elif structure == TWO_OF_FOUR:
        values, mask = _half_matrix(shape, density=density, count=count, generator=generator, dtype=dtype)
    else:
        values, mask = _block_matrix(
            shape, structure, stop=stop, start=start, generator=generator, dtype=dtype, **asked
        )
    if values.data_ptr() != weight.data_ptr():
        write_(weight, values if scale == 1 else values.mul_(scale))
    active: torch.Tensor = mask.to(weight.device)
    return active


def check_rotations(structure: str, *, stop: str, angle: float | None, start: str, align: Any, core: Any) -> None:
    """Raise a ValueError for an option that a structure's rotations do not have; 2:4 has no rotations."""
    if structure == TWO_OF_FOUR:
        changed = {"stop": stop != "exact", "angle": angle is not None, "start": start != "identity"}
        changed |= {"align": align is not None, "core": core is not None}
        for name in (name for name, differs in changed.items() if differs):
            raise ValueError(f"{name}: expected its default with structure '2:4', which has no rotations to change")
    elif structure != ENTRIES and angle is not None:
        raise ValueError(f"angle: expected None, as rotations of blocks have no angle; got {angle!r}")


def _entry_matrix(
    shape: tuple[int, int],
    *,
    density: float | None,
    count: int | None,
    floor: str,
    align: torch.Tensor | None,
    core: float | None,
    **draws: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return an orthogonal matrix and its mask; a partial isometry if the count is too small.

    `draws` are keywords of `givens.sample`; the matrix may be its `out`.
    """
    least, size = min(shape), math.prod(shape)
    total = resolve(density, count, least, size, floor=floor)
    inside = core_of(total, least, size, core)
    goal = None if align is None else alignment.goal_of(align, total)
    values, mask = sample(shape, inside, **draws)
    if goal is not None:
        values, mask = alignment.align(values, mask, goal)
    if total != inside:
        # max: the paper's stopping rules may overshoot.
        wanted = total if total < least else max(total, int(mask.sum()))
        mask = resize_towards(mask, wanted, goal, generator=derive(draw_seed(draws["generator"]), "kept"))
        values = values * mask
    return values, mask


def core_of(total: int, least: int, room: int, core: float | None) -> int:
    """Return the share `core` of `total` entries (None: all), clipped to what orthogonality needs and to `room`."""
    share = total if core is None else count_of(check_density(core, "core"), total)
    return max(least, min(share, room))


def _half_matrix(
    shape: tuple[int, int],
    *,
    density: float | None,
    count: int | None,
    generator: torch.Generator | None,
    dtype: torch.dtype,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return an orthogonal matrix with two of any aligned four entries along rows and columns, and its mask.

    Two of every four rows and of every four columns are chosen. One Haar-random orthogonal matrix lies on the chosen
    rows and columns, another one on the others.

    Raises:
        ValueError: a side is not a multiple of four, or the density is not 0.5.
    """
    if fitting(TWO_OF_FOUR, shape) != TWO_OF_FOUR:
        raise ValueError(f"structure: '2:4' expects sides that four divides; got {shape[0]} x {shape[1]}")
    size = shape[0] * shape[1]
    if 2 * requested(density, count, size) != size:
        received = f"count: got {count}" if density is None else f"density: got {density!r}"
        raise ValueError(f"{received}; expected {size // 2} entries, a density of 0.5, with structure '2:4'")
    seed = draw_seed(generator)
    rows, cols = two_of_four(shape, derive(seed, "fours"))
    values = torch.zeros(shape, dtype=torch.float64, device="cpu")
    halves = haar(2, shape[0] // 2, shape[1] // 2, generator=derive(seed, "halves"))
    for half, chosen in zip(halves, (True, False), strict=True):
        row, col = ((side == chosen).nonzero().squeeze(1) for side in (rows, cols))
        values[row.unsqueeze(1), col] = half
    return values.to(dtype), rows[:, None] == cols


def _block_matrix(
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
    """Return an orthogonal matrix of whole blocks and its mask; a partial isometry if the count is too small.

    The mask or scores of `align` are averaged over blocks; `core` is a share of the blocks.

    Raises:
        ValueError: the block size does not divide the sides, or there are too few blocks for orthogonality and `floor`
            is "error".
    """
    block, fits = block_of(structure), fitting(structure, shape)
    if fits != structure:
        instead = f"expected {fits!r}, the largest that does" if fits != ENTRIES else "expected 'entries'"
        raise ValueError(f"structure: {structure!r} does not divide {shape[0]} x {shape[1]}; {instead}")
    least = min(shape) * block
    total = resolve(density, count, least, shape[0] * shape[1], floor=floor, block=block)
    number, fewest = total // block**2, least // block**2
    inside = core_of(number, fewest, shape[0] * shape[1] // block**2, core)
    goal = None if align is None else alignment.goal_of(means_of(align.double().cpu(), block), number)
    values, grid = sample_blocks(shape, inside, block, stop=stop, start=start, generator=generator, dtype=dtype)
    if goal is not None:
        rows, cols = alignment.aligned_order(grid, goal)
        grid, values = (
            permute(grid, rows, cols),
            permute(values, _within(rows, block), _within(cols, block)),
        )
    if number != inside:
        wanted = number if number < fewest else max(number, int(grid.sum()))
        grid = resize_towards(grid, wanted, goal, generator=derive(draw_seed(generator), "kept"))
    mask = tiled(grid, block, shape)
    return values * mask if number < fewest else values, mask


def _within(order: torch.Tensor, block: int) -> torch.Tensor:
    """Return the order of rows (columns) for an order of blocks."""
    return (block * order.unsqueeze(1) + torch.arange(block, device=order.device)).flatten()
