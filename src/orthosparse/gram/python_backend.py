"""Gram matrices of sparse matrices by scipy's products, block by block."""

from typing import Any

import numpy as np
import numpy.typing as npt

_BLOCK = 2**22  # numbers of the Gram matrix at once


def squares(matrix: npt.NDArray[Any], rows: int, cols: int, scale: float, most: int, threads: int) -> float | None:
    """Return ||A^T A - I||^2 of A = scale * matrix, or None where that takes more than `most` products."""
    del threads  # one
    from scipy import sparse  # slow to import, and the kernel does without

    tall = rows >= cols
    in_crossing = np.count_nonzero(matrix, axis=1 if tall else 0).astype(np.int64)
    if int((in_crossing * in_crossing // 2).sum()) > most:
        return None
    lines = sparse.csr_array(matrix.T if tall else matrix).astype(np.float64) * scale
    size, total = lines.shape[0], 0.0
    step = max(1, _BLOCK // size)
    for first in range(0, size, step):
        block = lines[first : first + step] @ lines.T
        block = block - sparse.eye_array(*block.shape, k=first, format="csr")
        total += float(np.square(block.data).sum())
    return total
