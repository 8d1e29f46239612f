"""Dense orthogonal matrices, uniform among all of them (Haar), drawn in float64 on the CPU."""

import torch

from orthosparse.threads import on_threads


def haar(batch: int, rows: int, cols: int, *, generator: torch.Generator) -> torch.Tensor:
    """Return [batch, rows, cols] matrices with orthonormal rows or columns, whichever are fewer, uniform among those.

    The Q of a Gaussian matrix is uniform (Haar) once R is given a positive diagonal.
    """
    sizes = batch, max(rows, cols), min(rows, cols)
    tall = torch.randn(sizes, generator=generator, dtype=torch.float64, device="cpu")
    with on_threads(1):  # QR and matrix products have other last bits on another number of threads
        q, r = torch.linalg.qr(tall)
    signs = torch.where(r.diagonal(dim1=-2, dim2=-1) < 0, -1.0, 1.0)
    matrix: torch.Tensor = q * signs.unsqueeze(-2)
    return matrix if rows >= cols else matrix.mT
