"""Gram matrices of sparse matrices with scipy's products, block by block."""

from typing import Any

import numpy as np
import numpy.typing as npt

_BLOCK = 2**22  # entries of the Gram matrix that are computed at once


def squares(matrix: npt.NDArray[Any], rows: int, cols: int, scale: float, most: int, threads: int) -> float | None:
    """Return ||A^T A - I||^2 of A = scale * matrix, or None if that takes more than `most` products."""
    del threads  # scipy uses one
    from scipy import sparse  # slow to import, and not needed by the kernel

    tall = rows >= cols
    counts = np.count_nonzero(matrix, axis=1 if tall else 0).astype(np.int64)
    if int((counts * counts // 2).sum()) > most:
        return None
    vectors = sparse.csr_array(matrix.T if tall else matrix).astype(np.float64) * scale
    size, total = vectors.shape[0], 0.0
    step = max(1, _BLOCK // size)
    for first in range(0, size, step):
        block = vectors[first : first + step] @ vectors.T
        block = block - sparse.eye_array(*block.shape, k=first, format="csr")
        total += float(np.square(block.data).sum())
    return total
