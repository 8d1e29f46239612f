"""The distance of a sparse matrix's Gram matrix from the identity, computed from its non-zeros in float64."""

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

import torch

from orthosparse.gram import python_backend

_NAME = "orthosparse.gram._kernel"
_DENSE_IS_QUICKER = 32  # pairs of numbers that a dense product multiplies in the time of one pair here


def sparse_squares(matrix: torch.Tensor, *, scale: float = 1.0, threads: int = 1) -> float | None:
    """Return ||G - I||_F^2, G the Gram matrix of ``scale * matrix`` on its smaller side.

    The time is that of multiplying every two non-zeros of the same row (of the same column of a wide matrix), and no
    array of G's size is allocated. Returns None if a dense product is faster, if the matrix is not on the CPU, or if it
    is neither float32 nor float64.

    Example:
        >>> matrix = torch.zeros(64, 32)
        >>> matrix[:32] = 2 * torch.eye(32)
        >>> sparse_squares(matrix, scale=0.5), sparse_squares(matrix), sparse_squares(torch.ones(64, 32))
        (0.0, 288.0, None)
    """
    if matrix.device.type != "cpu" or matrix.dtype not in (torch.float32, torch.float64):
        return None
    short, long = sorted(matrix.shape)
    most = short * short * long // _DENSE_IS_QUICKER
    rows = matrix if matrix.is_contiguous() else matrix.T  # as orthogonal either way
    squares: float | None = _backend().squares(rows.contiguous().numpy(), *rows.shape, scale, most, threads)
    return squares


@cache
def _backend() -> ModuleType:
    """Return the compiled kernel if it was built, else the Python backend."""
    return import_module(_NAME) if find_spec(_NAME) is not None else python_backend
