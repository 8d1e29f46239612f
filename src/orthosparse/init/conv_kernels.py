"""Dense orthogonal convolution kernels that use all taps, drawn in float64 on the CPU."""

from collections.abc import Sequence

import torch

from orthosparse.haar import haar, one_thread


def projections(batch: int, size: int, *, generator: torch.Generator) -> torch.Tensor:
    """Return [batch, size, size] projections onto uniform subspaces, each direction of a basis kept by a fair coin."""
    basis = haar(batch, size, size, generator=generator)
    kept = torch.randint(2, (batch, 1, size), generator=generator, device="cpu")
    with one_thread():
        return (basis * kept) @ basis.mT


def conv_kernels(batch: int, rows: int, cols: int, sides: Sequence[int], *, generator: torch.Generator) -> torch.Tensor:
    """Return [batch, rows, cols, *sides] kernels that are orthogonal convolutions (Xiao et al. 2018, Algorithm 1).

    With a projection P, the two-tap kernel (P, I - P) along one axis has A(f) = P + (I - P) exp(-if), which is unitary.
    A matrix with orthonormal columns, followed by side - 1 such kernels along each axis, is orthogonal and has the
    wanted sides. The algorithm's 2 x 2 block (PQ, P(I-Q); (I-P)Q, (I-P)(I-Q)) is one along each of two axes; kept
    apart they also give lines, boxes and kernels with unequal or even sides. Projections are fresh at every step.
    """
    large, small = max(rows, cols), min(rows, cols)
    kernel = haar(batch, large, small, generator=generator).reshape(batch, *[1] * len(sides), large, small)
    for step in range(1, max(sides)):
        for axis, side in enumerate(sides, start=1):
            if step < side:
                block = projections(batch, large, generator=generator)
                kernel = _followed(kernel, block.reshape(batch, *[1] * len(sides), large, large), axis)
    kernel = kernel.movedim((-2, -1), (1, 2))
    return kernel if rows >= cols else kernel.transpose(1, 2)


def _followed(kernel: torch.Tensor, block: torch.Tensor, axis: int) -> torch.Tensor:
    """Return the kernel of the convolution by `kernel`, then by (P, I - P) along `axis`, P = `block`."""
    with one_thread():
        here = block @ kernel
    nothing = torch.zeros_like(kernel.narrow(axis, 0, 1))
    return torch.cat([here, nothing], dim=axis) + torch.cat([nothing, kernel - here], dim=axis)
