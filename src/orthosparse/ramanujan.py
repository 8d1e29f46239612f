"""Regular bipartite graphs, and exactly orthogonal matrices whose masks they are (SAO).

Terms follow the paper's appendix on SAO. A matrix with sides short <= long has `degree` entries in every vector along
its long side (a row of a wide matrix, a column of a tall one), and short * degree / long entries in every vector along
the other. The supports of two rows of a wide matrix are either equal or disjoint, and rows with equal supports are
vectors of an orthonormal basis.
"""

import math

import torch

from orthosparse.checks import check_int
from orthosparse.randomness import derive, draw_seed, haar


def degrees_of(shape: tuple[int, int]) -> list[int]:
    """Return all degrees that a matrix of this shape can have, in ascending order; the density is degree / long side.

    Example:
        >>> degrees_of((96, 128)), degrees_of((12, 12))
        ([4, 8, 16, 32, 64, 128], [1, 2, 3, 4, 6, 12])
    """
    short, long = sorted(shape)
    return [degree for degree in range(1, long + 1) if long % degree == 0 and short * degree % long == 0]


def regular_bipartite_mask(
    shape: tuple[int, int], degree: int, *, generator: torch.Generator | None = None
) -> torch.Tensor:
    """Return a random regular mask: all rows have the same number of ones, and so do all columns.

    A row of a wide mask, or a column of a tall one, has `degree` ones.

    Args:
        degree: one of the degrees that `degrees_of` returns for the shape.
        generator: the seed is drawn from it; None takes one from the operating system.

    Raises:
        ValueError: the shape does not allow the degree.

    Example:
        >>> mask = regular_bipartite_mask((6, 12), 4, generator=torch.Generator().manual_seed(0))
        >>> mask.sum(1).tolist(), mask.sum(0).unique().tolist()
        ([4, 4, 4, 4, 4, 4], [2])
    """
    seed = draw_seed(generator)
    rows, cols = _supports(shape, degree, derive(seed, "supports"))
    mask = torch.zeros(min(shape), max(shape), dtype=torch.bool, device="cpu")
    mask[rows.unsqueeze(2), cols.unsqueeze(1)] = True
    return mask if shape[0] <= shape[1] else mask.T.contiguous()


def sample(
    shape: tuple[int, int], degree: int, *, generator: torch.Generator | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a random orthogonal matrix (float64) on a regular mask, and the mask.

    The mask is what `regular_bipartite_mask` returns for the same generator. With the largest degree, the long side,
    the matrix is dense and uniformly distributed (Haar). `degree` and `generator` are those of
    `regular_bipartite_mask`.

    Raises:
        ValueError: the shape does not allow the degree.

    Example:
        >>> values, mask = sample((4, 8), 4, generator=torch.Generator().manual_seed(0))
        >>> torch.allclose(values @ values.T, torch.eye(4, dtype=torch.float64)), int(mask.sum())
        (True, 16)
    """
    seed = draw_seed(generator)
    rows, cols = _supports(shape, degree, derive(seed, "supports"))
    bases = haar(len(rows), degree, rows.shape[1], generator=derive(seed, "values")).mT  # orthonormal rows
    values = torch.zeros(min(shape), max(shape), dtype=torch.float64, device="cpu")
    mask = torch.zeros_like(values, dtype=torch.bool)
    entries = rows.unsqueeze(2), cols.unsqueeze(1)
    values[entries], mask[entries] = bases, True
    if shape[0] > shape[1]:
        values, mask = values.T.contiguous(), mask.T.contiguous()
    return values, mask


def _supports(shape: tuple[int, int], degree: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the rows that share each support, [supports, short * degree / long], and its columns, [supports, degree].

    The paper stacks copies of one block in which every column is used once; here rows and columns are shuffled too.
    Rows lie along the short side.
    """
    _check(shape, degree)
    short, long = sorted(shape)
    supports = long // degree
    rows = torch.randperm(short, generator=generator, device="cpu").view(supports, -1)
    return rows, torch.randperm(long, generator=generator, device="cpu").view(supports, degree)


def _check(shape: tuple[int, int], degree: int) -> None:
    short, long = sorted(shape)
    check_int(degree, "degree")
    if not 1 <= degree <= long or long % degree or short * degree % long:
        raise ValueError(
            f"degree: expected a divisor of {long} such that {short} * degree / {long} is an integer "
            f"({', '.join(map(str, degrees_of(shape)))}); got {degree}"
        )


def second_singular_value(mask: torch.Tensor) -> float:
    """Return the second largest singular value of `mask`, which measures how well its graph expands.

    If the rows and columns of a regular mask have degrees c and d, its largest singular value is sqrt(c d). The graph
    is connected if and only if the second one is smaller, and Ramanujan if it is at most ``ramanujan_bound(c, d)``.
    Supports that are equal or disjoint form a union of complete bipartite graphs, so a mask of SAO below full density
    is neither: its two largest singular values are equal. Costs a singular value decomposition.

    Example:
        >>> second_singular_value(torch.ones(3, 4)), second_singular_value(torch.eye(3))
        (0.0, 1.0)
    """
    values = torch.linalg.svdvals(mask.double())
    second = float(values[1]) if len(values) > 1 else 0.0
    return second if second > len(values) * torch.finfo(torch.float64).eps * float(values[0]) else 0.0


def ramanujan_bound(first: int, second: int) -> float:
    """Return sqrt(c - 1) + sqrt(d - 1), the second singular value that no infinite family of regular graphs beats.

    `first` and `second` are c and d, the degrees of rows and columns.

    Example:
        >>> ramanujan_bound(5, 5)
        4.0
    """
    return math.sqrt(first - 1) + math.sqrt(second - 1)
