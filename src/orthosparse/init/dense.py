"""Dense orthogonal kernels: of one tap, and of all taps."""

from collections.abc import Sequence

import torch

from orthosparse.aliases import TapName
from orthosparse.checks import KERNEL, check_fillable
from orthosparse.distributed import write_
from orthosparse.hardware import on_threads
from orthosparse.init import delta
from orthosparse.orthogonality import group_views
from orthosparse.randomness import derive, draw_seed, haar
from orthosparse.strides import phases_of


def delta_orthogonal_(
    weight: torch.Tensor,
    *,
    groups: int = 1,
    gain: float = 1.0,
    tap: TapName | str = "center",
    transposed: bool = False,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    generator: torch.Generator | None = None,
) -> torch.Tensor:
    """Fill a convolution weight with a dense orthogonal matrix per group at one tap, and zeros elsewhere.

    Args:
        groups: groups of the convolution; the matrix of each is orthogonal by itself.
        gain: factor of the matrices.
        tap: "center" is index (side - 1) // 2 of each side; "random" draws a tap for each input channel.
        transposed: whether the weight is that of a transposed convolution, stored as (in, out, ...).
        stride: stride of the convolution. With `padding` and `dilation`, it determines a window of taps that the matrix
            lies on, so that the windows tile the image (see `sparse_delta_orthogonal_`).
        generator: the seed is drawn from it; None takes one from the operating system.

    Example:
        >>> weight = delta_orthogonal_(torch.empty(1, 1, 3), generator=torch.Generator().manual_seed(0))
        >>> weight.abs()
        tensor([[[0., 1., 0.]]])
    """
    scale = check_fillable(weight, KERNEL, gain)
    groups, first, second, *sides = group_views(weight, groups).shape
    seed = draw_seed(generator)
    shape, phases = (groups, first, second, *sides), phases_of(sides, stride, padding, dilation)
    positions = delta.taps(shape, phases, tap=tap, transposed=transposed, generator=derive(seed, "taps"))
    matrices = haar(groups, first, second * len(phases), generator=derive(seed, "matrix"))
    kernels = delta.embed(matrices * scale, positions, sides)
    return write_(weight, kernels.reshape(weight.shape))


def conv_orthogonal_(
    weight: torch.Tensor,
    *,
    groups: int = 1,
    gain: float = 1.0,
    transposed: bool = False,
    generator: torch.Generator | None = None,
) -> torch.Tensor:
    """Fill a convolution weight with an orthogonal kernel that uses all taps (Xiao et al. 2018, Algorithm 1).

    Kernels may have one to three dimensions, and sides that are odd or even, equal or not.

    Args:
        groups: groups of the convolution; the kernel of each is orthogonal by itself.
        gain: factor of the kernel.
        transposed: whether the weight is that of a transposed convolution, stored as (in, out, ...).
        generator: the seed is drawn from it; None takes one from the operating system.

    Example:
        >>> from orthosparse.isometry import orthogonality_score
        >>> weight = conv_orthogonal_(torch.empty(4, 3, 3, 2), generator=torch.Generator().manual_seed(0))
        >>> orthogonality_score(weight) < 1e-6
        True
    """
    del transposed  # the adjoint of an orthogonal map is orthogonal: one draw serves both layouts
    scale = check_fillable(weight, KERNEL, gain)
    groups, first, second, *sides = group_views(weight, groups).shape
    generator = derive(draw_seed(generator), "kernel")
    kernels = conv_kernels(groups, first, second, sides, generator=generator) * scale
    return write_(weight, kernels.reshape(weight.shape))


def projections(batch: int, size: int, *, generator: torch.Generator) -> torch.Tensor:
    """Return [batch, size, size] random projections, which keep each direction of a Haar basis with probability 1/2."""
    basis = haar(batch, size, size, generator=generator)
    kept = torch.randint(2, (batch, 1, size), generator=generator, device="cpu")
    with on_threads(1):
        return (basis * kept) @ basis.mT


def conv_kernels(batch: int, rows: int, cols: int, sides: Sequence[int], *, generator: torch.Generator) -> torch.Tensor:
    """Return [batch, rows, cols, *sides] kernels that are orthogonal convolutions (Xiao et al. 2018, Algorithm 1).

    With a projection P, the two-tap kernel (P, I - P) along one axis has A(f) = P + (I - P) exp(-if), which is unitary.
    A matrix with orthonormal columns, followed by side - 1 such kernels along each axis, is orthogonal and has the
    wanted sides. The algorithm's 2 x 2 block (PQ, P(I-Q); (I-P)Q, (I-P)(I-Q)) is one along each of two axes; kept
    separate they also give 1-d and 3-d kernels, and unequal or even sides. Every step draws new projections.
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
    with on_threads(1):
        projected = block @ kernel
    padding = torch.zeros_like(kernel.narrow(axis, 0, 1))
    return torch.cat([projected, padding], dim=axis) + torch.cat([padding, kernel - projected], dim=axis)
