"""Dense orthogonal matrices, uniform among all of them (Haar), drawn in float64 on the CPU."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


def haar(batch: int, rows: int, cols: int, *, generator: torch.Generator) -> torch.Tensor:
    """Return [batch, rows, cols] matrices with orthonormal rows or columns, whichever are fewer, uniform among those.

    The Q of a Gaussian matrix is uniform (Haar) once R is given a positive diagonal.
    """
    sizes = batch, max(rows, cols), min(rows, cols)
    tall = torch.randn(sizes, generator=generator, dtype=torch.float64, device="cpu")
    with one_thread():
        q, r = torch.linalg.qr(tall)
    signs = torch.where(r.diagonal(dim1=-2, dim2=-1) < 0, -1.0, 1.0)
    matrix: torch.Tensor = q * signs.unsqueeze(-2)
    return matrix if rows >= cols else matrix.mT


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one thread inside: QR and matrix products have other last bits on another number of threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
