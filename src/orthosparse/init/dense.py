"""Dense orthogonal starts of one weight: a matrix, a delta kernel, a kernel that uses all taps."""

from collections.abc import Sequence

import torch

from orthosparse.checks import KERNEL, MATRIX, check_fillable
from orthosparse.choices import TapName
from orthosparse.distributed import write_
from orthosparse.haar import haar
from orthosparse.init import delta
from orthosparse.init.conv_kernels import conv_kernels
from orthosparse.orthogonality import group_views
from orthosparse.randomness import derive, draw_seed
from orthosparse.strides import phases_of


def orthogonal_(weight: torch.Tensor, *, gain: float = 1.0, generator: torch.Generator | None = None) -> torch.Tensor:
    """Fill a matrix with a dense orthogonal one, uniform among all of them (Haar), times `gain`.

    Args:
        generator: gives one seed; None: one from the operating system.

    Example:
        >>> weight = orthogonal_(torch.empty(2, 3), generator=torch.Generator().manual_seed(0))
        >>> torch.allclose(weight @ weight.T, torch.eye(2), atol=1e-6)
        True
    """
    scale = check_fillable(weight, MATRIX, gain)
    matrix = haar(1, *weight.shape, generator=derive(draw_seed(generator), "matrix"))[0]
    return write_(weight, matrix * scale)


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
        groups: of the convolution; the matrix of each is orthogonal by itself.
        gain: multiplies the matrices.
        transposed: the weight is that of a transposed convolution, stored as (in, out, ...).
        tap: "center" is index (side - 1) // 2 of each side; "random" shifts each input channel to a tap of its own.
        stride: of the convolution, like `padding` and `dilation`, as in `sparse_delta_orthogonal_`: the matrix lies on
            a window of taps, and the windows tile the picture.
        generator: gives one seed; None: one from the operating system.

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

    Kernels of any sides, equal or not, odd or even, in one to three dimensions.

    Args:
        groups: of the convolution; the kernel of each is orthogonal by itself.
        gain: multiplies the kernel.
        transposed: the weight is that of a transposed convolution, stored as (in, out, ...).
        generator: gives one seed; None: one from the operating system.

    Example:
        >>> from orthosparse.orthogonality import is_orthogonal
        >>> is_orthogonal(conv_orthogonal_(torch.empty(4, 3, 3, 2), generator=torch.Generator().manual_seed(0)))
        True
    """
    del transposed  # the adjoint of an orthogonal map is orthogonal: one draw serves both ways to store it
    scale = check_fillable(weight, KERNEL, gain)
    groups, first, second, *sides = group_views(weight, groups).shape
    generator = derive(draw_seed(generator), "kernel")
    kernels = conv_kernels(groups, first, second, sides, generator=generator) * scale
    return write_(weight, kernels.reshape(weight.shape))
