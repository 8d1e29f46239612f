"""Structures: the units of a matrix that are active or not, which of them fit a matrix, and which a mask has.

``"entries"`` are single weights. ``"block:64"`` is square blocks of 64 x 64 weights (or another power of two, at least
16). ``"2:4"`` is two of every aligned four, along rows and along columns. A tensor with one tap, ``[out, in, 1, ...]``,
counts as a matrix. The grid of a tensor has one entry for each of its units.
"""

import math
from collections.abc import Callable, Iterable, Sequence

import torch

ENTRIES, TWO_OF_FOUR = "entries", "2:4"
SMALLEST_BLOCK = 16  # size of the matrices that the tensor cores of a GPU multiply
BLOCK = "block:"


def block_of(structure: str) -> int:
    """Return the side of the blocks of a structure; 1 if its units are entries.

    Example:
        >>> block_of("block:64"), block_of("entries")
        (64, 1)
    """
    return int(structure.removeprefix(BLOCK)) if structure.startswith(BLOCK) else 1


def fitting(structure: str, sides: Iterable[int]) -> str:
    """Return `structure`, or the largest smaller blocks whose side divides all `sides` if its blocks do not.

    If there are none, or if ``"2:4"`` is asked for and four does not divide all sides, return ``"entries"``.

    Example:
        >>> fitting("block:64", [768, 96]), fitting("block:64", [768, 10])
        ('block:32', 'entries')
    """
    least = math.gcd(*sides)
    if structure == TWO_OF_FOUR:
        return structure if least % 4 == 0 else ENTRIES
    return largest_fitting(2 * block_of(structure), lambda block: least % block == 0) or ENTRIES


def largest_fitting(block: int, fits: Callable[[int], bool]) -> str | None:
    """Return the structure of the largest units below `block` that fit; entries (blocks of side 1) come last.

    Example:
        >>> largest_fitting(64, lambda block: block < 20)
        'block:16'
    """
    while block > 1:
        block = block // 2 if block > SMALLEST_BLOCK else 1
        if fits(block):
            return ENTRIES if block == 1 else f"{BLOCK}{block}"
    return None


def grid_of(mask: torch.Tensor, block: int) -> torch.Tensor:
    """Return which blocks of a mask of whole blocks are active; with blocks of side 1, the mask itself.

    Example:
        >>> grid_of(torch.ones(32, 48, dtype=torch.bool), 16).shape
        torch.Size([2, 3])
    """
    return mask if block == 1 else mask.flatten(1)[::block, ::block]


def means_of(scores: torch.Tensor, block: int) -> torch.Tensor:
    """Return the mean of each block; with blocks of side 1, the scores themselves."""
    if block == 1:
        return scores
    rows, cols = scores.shape[0] // block, scores.shape[1] // block
    return scores.reshape(rows, block, cols, block).mean((1, 3))


def tiled(grid: torch.Tensor, block: int, shape: Sequence[int]) -> torch.Tensor:
    """Return the tensor of `shape` whose blocks have the values of `grid`; with blocks of side 1, the grid itself."""
    if block == 1:
        return grid
    return grid.repeat_interleave(block, 0).repeat_interleave(block, 1).reshape(tuple(shape))


def two_of_four(sides: Sequence[int], generator: torch.Generator) -> list[torch.Tensor]:
    """Return, for each side, a random choice of two of every aligned four indices, as bools.

    The entries whose row and column are both chosen, or both not chosen, form a matrix of two independent halves, in
    which two of every aligned four along rows and along columns are active.

    Example:
        >>> rows, cols = two_of_four((8, 12), torch.Generator().manual_seed(0))
        >>> structure_of(rows[:, None] == cols)
        '2:4'
    """
    draws = [torch.rand(side // 4, 4, generator=generator, dtype=torch.float64, device="cpu") for side in sides]
    return [(draw.argsort(1) < 2).flatten() for draw in draws]


def structure_of(mask: torch.Tensor) -> str:
    """Return the structure of a mask: 2:4, the largest possible blocks, or else entries.

    The structure of full masks, empty masks and masks of kernels with several taps is entries.

    Example:
        >>> structure_of(tiled(torch.eye(3, dtype=torch.bool), 32, (96, 96)))
        'block:32'
    """
    if mask.dim() < 2 or math.prod(mask.shape[2:]) != 1 or bool(mask.all()) or not bool(mask.any()):
        return ENTRIES
    matrix = mask.flatten(1)
    if _is_two_of_four(matrix):
        return TWO_OF_FOUR
    edges = [_edges(matrix), _edges(matrix.T)]
    common = math.gcd(*matrix.shape, *(edge for side in edges for edge in side))
    block = common & -common  # the largest power of two that divides it
    return f"{BLOCK}{block}" if block >= SMALLEST_BLOCK else ENTRIES


def _edges(matrix: torch.Tensor) -> list[int]:
    """Return the indices of rows that differ from the row before."""
    differ = (matrix[1:] != matrix[:-1]).any(1)
    edges: list[int] = (differ.nonzero().flatten() + 1).tolist()
    return edges


def _is_two_of_four(matrix: torch.Tensor) -> bool:
    if any(side % 4 for side in matrix.shape):
        return False
    if not bool((matrix[:4].unflatten(1, (-1, 4)).sum(2) == 2).all()):  # the first rows already exclude most masks
        return False
    fours = matrix.unflatten(1, (-1, 4)).sum(2), matrix.unflatten(0, (-1, 4)).sum(1)
    return all(bool((four == 2).all()) for four in fours)
