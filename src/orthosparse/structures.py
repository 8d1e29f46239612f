"""Structures: the units of a matrix that are active or not, which of them fit a matrix, and which a mask has.

``"entries"`` are single weights. ``"block:64"`` is square blocks of 64 x 64 weights, 64 or another power of two from 16
on. A tensor of one tap, ``[out, in, 1, ...]``, counts as the matrix it holds; the grid of a tensor has one entry for
each of its units.
"""

import math
from collections.abc import Callable, Iterable, Sequence

import torch

ENTRIES = "entries"
SMALLEST_BLOCK = 16  # what the matrix units of a GPU multiply at once
_BLOCK = "block:"


def check_structure(structure: str) -> str:
    """Return `structure`.

    Raises:
        ValueError: it is none that there is.

    Example:
        >>> check_structure("block:48")
        Traceback (most recent call last):
        ...
        ValueError: structure: expected 'entries' or 'block:N', N a power of two from 16 on; got 'block:48'
    """
    if structure != ENTRIES and not _is_block(structure):
        expected = f"{ENTRIES!r} or '{_BLOCK}N', N a power of two from {SMALLEST_BLOCK} on"
        raise ValueError(f"structure: expected {expected}; got {structure!r}")
    return structure


def _is_block(structure: object) -> bool:
    digits = structure.removeprefix(_BLOCK) if isinstance(structure, str) and structure.startswith(_BLOCK) else ""
    if not (digits.isascii() and digits.isdigit()) or digits.startswith("0"):
        return False
    return int(digits) >= SMALLEST_BLOCK and int(digits).bit_count() == 1


def block_of(structure: str) -> int:
    """Return the side of a structure's blocks; 1 where its units are entries.

    Example:
        >>> block_of("block:64"), block_of("entries")
        (64, 1)
    """
    return int(structure.removeprefix(_BLOCK)) if structure.startswith(_BLOCK) else 1


def fitting(structure: str, sides: Iterable[int]) -> str:
    """Return `structure`, or where its blocks divide not all `sides`, one of the largest smaller blocks that do.

    Where there is none, that is ``"entries"``.

    Example:
        >>> fitting("block:64", [768, 96]), fitting("block:64", [768, 10])
        ('block:32', 'entries')
    """
    if structure == ENTRIES:
        return structure
    least = math.gcd(*sides)
    return largest_fitting(2 * block_of(structure), lambda block: least % block == 0) or ENTRIES


def largest_fitting(block: int, fits: Callable[[int], bool]) -> str | None:
    """Return the structure of the largest units below `block` that fit, entries (blocks of 1) being the last.

    Example:
        >>> largest_fitting(64, lambda block: block < 20)
        'block:16'
    """
    while block > 1:
        block = block // 2 if block > SMALLEST_BLOCK else 1
        if fits(block):
            return ENTRIES if block == 1 else f"{_BLOCK}{block}"
    return None


def grid_of(mask: torch.Tensor, block: int) -> torch.Tensor:
    """Return which blocks of a mask of whole blocks are active; with blocks of 1, the mask itself.

    Example:
        >>> grid_of(torch.ones(32, 48, dtype=torch.bool), 16).shape
        torch.Size([2, 3])
    """
    return mask if block == 1 else mask.flatten(1)[::block, ::block]


def means_of(scores: torch.Tensor, block: int) -> torch.Tensor:
    """Return the mean of each block; with blocks of 1, the scores themselves."""
    if block == 1:
        return scores
    rows, cols = scores.shape[0] // block, scores.shape[1] // block
    return scores.reshape(rows, block, cols, block).mean((1, 3))


def tiled(grid: torch.Tensor, block: int, shape: Sequence[int]) -> torch.Tensor:
    """Return the tensor of `shape` whose blocks have the values of `grid`; with blocks of 1, the grid itself."""
    if block == 1:
        return grid
    return grid.repeat_interleave(block, 0).repeat_interleave(block, 1).reshape(tuple(shape))


def structure_of(mask: torch.Tensor) -> str:
    """Return the structure that a mask has: blocks as large as can be, or else entries.

    A full mask, an empty one, and that of a kernel of several taps have entries.

    Example:
        >>> structure_of(tiled(torch.eye(3, dtype=torch.bool), 32, (96, 96)))
        'block:32'
    """
    if mask.dim() < 2 or math.prod(mask.shape[2:]) != 1 or bool(mask.all()) or not bool(mask.any()):
        return ENTRIES
    matrix = mask.flatten(1)
    edges = [_edges(matrix), _edges(matrix.T)]
    common = math.gcd(*matrix.shape, *(edge for side in edges for edge in side))
    block = common & -common  # the largest power of two that divides it
    return f"{_BLOCK}{block}" if block >= SMALLEST_BLOCK else ENTRIES


def _edges(matrix: torch.Tensor) -> list[int]:
    """Return the rows that differ from the row before."""
    differ = (matrix[1:] != matrix[:-1]).any(1)
    edges: list[int] = (differ.nonzero().flatten() + 1).tolist()
    return edges
