"""Measure how orthogonal a matrix or a convolution kernel is, and which of its channels are dead.

A weight is (out, in / groups, *kernel), or (in, out / groups, *kernel) if transposed; one with two dimensions is a
matrix. Either way the first dimension is split into `groups` blocks, each of which is a separate map. A kernel is
measured as the linear map that the convolution (circular padding) applies to a whole signal. The Fourier transform
splits that map into one small matrix A(f) per frequency f, A(f) = sum over taps t of K[t] exp(-2 pi i f t / size), and
the map is orthogonal exactly when every A(f) is. A strided convolution is measured as the equivalent convolution of
stride 1, with more channels on a smaller signal (see `strides`).
"""

import math
from collections.abc import Sequence

import torch

from orthosparse.checks import check_gain, check_groups, check_per_side, check_readable
from orthosparse.gram import sparse_squares
from orthosparse.hardware import kernel_threads, on_float64_device, to_float64
from orthosparse.strides import polyphase

_LARGE = 2**16  # entries from which it pays to search for the non-zeros first


def orthogonality_score(
    weight: torch.Tensor,
    *,
    groups: int = 1,
    transposed: bool = False,
    spatial: int | Sequence[int] | None = None,
    stride: int | Sequence[int] = 1,
    gain: float = 1.0,
    dtype: torch.dtype = torch.float64,
) -> float:
    """Return ||A^T A - I||_F of A = weight / gain, with A A^T if A has fewer rows than columns.

    The score of a kernel is sqrt(mean over f of ||A(f)^H A(f) - I||_F^2). A kernel with one tap has the score of its
    matrix, and so does a delta kernel, shifted or not. Groups count as the blocks of one matrix.

    Args:
        transposed: whether the weight is stored as (in, out / groups, *kernel). The score is the same either way.
        spatial: size of the signal. By default, the score holds for any signal with sides of at least 2 k - 1, where k
            is the side of the kernel: by Parseval it is the distance of the kernel's autocorrelation from a delta, and
            from that size on no lag wraps onto another. A stride must divide the size, which for a transposed
            convolution is that of the output.
        stride: stride of the convolution: one number, or one for each side of the kernel.
        dtype: dtype of the arithmetic; float32 takes half the time and adds its own rounding to the score. Large sparse
            matrices are scored from their non-zeros, always in float64.

    Example:
        >>> orthogonality_score(torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 2.0]]))
        3.0
        >>> round(orthogonality_score(torch.tensor([[[0.5, 0.5]]])), 4)  # sqrt of the mean of ((cos f - 1) / 2)^2
        0.6124
    """
    del transposed  # the adjoint of an isometry, measured on the smaller side, has the same score
    gain = check_gain(gain)
    if gain == 0:
        raise ValueError("gain: expected a number other than 0; got 0")
    if dtype not in (torch.float32, torch.float64):
        raise TypeError(f"dtype: expected torch.float32 or torch.float64; got {dtype!r}")
    kernel, sizes = _on_signal(on_float64_device(_kernels(weight, groups)), spatial, stride)
    if kernel[0, 0, 0].numel() == 1 and kernel[0].numel() >= _LARGE:
        scores = [_sparse_squares(matrix, gain, dtype) for matrix in kernel.flatten(2)]
        return math.sqrt(sum(scores))
    spectrum, multiplicity = _spectrum(_scaled(kernel, gain, dtype), sizes)
    squares = _squares(spectrum)
    return math.sqrt(float((squares * multiplicity).sum() / multiplicity.sum()))


def _sparse_squares(matrix: torch.Tensor, gain: float, dtype: torch.dtype) -> float:
    """Return the square of the score of one matrix, from its non-zeros if there are few."""
    real = matrix if matrix.dtype in (torch.float32, torch.float64) else matrix.to(dtype)
    squares = sparse_squares(real, scale=1 / gain, threads=kernel_threads(real.numel()))
    return float(_squares(_scaled(matrix[None], gain, dtype))) if squares is None else squares


def _scaled(kernel: torch.Tensor, gain: float, dtype: torch.dtype) -> torch.Tensor:
    return kernel.to(dtype) if gain == 1 else kernel.to(dtype) / gain


def _squares(matrices: torch.Tensor) -> torch.Tensor:
    """Return ||A^H A - I||_F^2 on the smaller side, summed over all but the first dimension of `matrices`."""
    wide = matrices.shape[-2] < matrices.shape[-1]
    gram = matrices @ matrices.mH if wide else matrices.mH @ matrices
    gram.diagonal(dim1=-2, dim2=-1).sub_(1)
    rows = (torch.view_as_real(gram) if gram.is_complex() else gram).flatten(1)
    squares: torch.Tensor = torch.linalg.vecdot(rows, rows)
    return squares


def singular_values_of(
    weight: torch.Tensor,
    *,
    groups: int = 1,
    transposed: bool = False,
    spatial: int | Sequence[int] | None = None,
    stride: int | Sequence[int] = 1,
) -> torch.Tensor:
    """Return the singular values, float64 [frequencies, groups, smaller side]; all of them for a `spatial` signal.

    A matrix has one frequency. Frequencies come in no particular order, each as often as the signal has it.

    Example:
        >>> singular_values_of(torch.tensor([[3.0, 4.0]]))
        tensor([[[5.]]], dtype=torch.float64)
    """
    del transposed  # the adjoint has the same singular values
    kernel, sizes = _on_signal(to_float64(_kernels(weight, groups)), spatial, stride)
    spectrum, multiplicity = _spectrum(kernel, sizes)
    values: torch.Tensor = torch.linalg.svdvals(spectrum)
    return values.repeat_interleave(multiplicity, dim=0)


def dead_outputs(weight: torch.Tensor, *, groups: int = 1, transposed: bool = False) -> torch.Tensor:
    """Return which output channels (rows of a matrix) of a weight or a mask are zero everywhere.

    Example:
        >>> dead_outputs(torch.tensor([[1.0, 0.0], [0.0, 0.0]]))
        tensor([False,  True])
    """
    kernels = _kernels(weight, groups).flatten(3)
    live = kernels if kernels.dtype == torch.bool else kernels.ne(0)
    axes = (1, 3) if transposed else (2, 3)
    if live.device.type == "cpu":  # numpy reduces bools a hundred times faster than torch
        return torch.from_numpy(live.numpy().any(axis=axes)).flatten().logical_not()
    return live.any(axes[1]).any(axes[0]).flatten().logical_not()


def dead_inputs(weight: torch.Tensor, *, groups: int = 1, transposed: bool = False) -> torch.Tensor:
    """Return which input channels (columns of a matrix) of a weight or a mask are zero everywhere."""
    return dead_outputs(weight, groups=groups, transposed=not transposed)


def group_views(weight: torch.Tensor, groups: int) -> torch.Tensor:
    """View `weight` as [groups, first / groups, second, *kernel].

    Groups split the first dimension, whether the weight is stored transposed or not.

    Raises:
        ValueError: `groups` does not divide the first dimension.
    """
    groups = check_groups(weight, groups)
    return weight.detach().view(groups, weight.shape[0] // groups, *weight.shape[1:])


def _kernels(weight: torch.Tensor, groups: int) -> torch.Tensor:
    """View `weight` as [groups, first / groups, second, *kernel], with a kernel of one tap for a matrix."""
    check_readable(weight)
    views = group_views(weight, groups)
    return views if weight.dim() > 2 else views.unsqueeze(-1)


def _spectrum(kernel: torch.Tensor, sizes: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return A(f), [frequencies, groups, first, second], and how many of a signal's frequencies each represents.

    A real kernel has A(-f) = conj A(f), so half of the frequencies along the last dimension suffice.
    """
    sides = kernel.shape[3:]
    multiplicity = torch.ones([*sizes[:-1], sizes[-1] // 2 + 1], dtype=torch.int64, device=kernel.device)
    multiplicity[..., 1 : (sizes[-1] + 1) // 2] = 2
    if all(side == 1 for side in sides):  # one tap: every frequency has the same real matrix
        return kernel.flatten(3).movedim(3, 0), multiplicity.sum().reshape(1)
    waves = torch.ones(1, 1, dtype=torch.complex128, device=kernel.device)
    for axis, (side, size) in enumerate(zip(sides, sizes, strict=True)):
        kept = size // 2 + 1 if axis == len(sides) - 1 else size
        waves = torch.kron(waves, _fourier(side, size, kept, kernel.device))
    # One real product over all taps, real and imaginary parts side by side, leaves the frequencies first.
    parts = torch.view_as_real(waves.mT).movedim(2, 1).flatten(0, 1).to(kernel.dtype)
    taps_first = kernel.flatten(3).movedim(3, 0)
    real, imaginary = (parts @ taps_first.flatten(1)).view(-1, 2, *taps_first.shape[1:]).unbind(1)
    return torch.complex(real, imaginary), multiplicity.flatten()


def _fourier(side: int, size: int, kept: int, device: torch.device) -> torch.Tensor:
    """Return exp(-2 pi i f t / size) for taps t < side (they wrap past size) and frequencies f < kept."""
    turns = torch.outer(torch.arange(side, device=device), torch.arange(kept, device=device)) % size
    angles = turns.double() * (-2 * math.pi / size)
    return torch.polar(torch.ones_like(angles), angles)


def _unshifted(kernel: torch.Tensor) -> torch.Tensor:
    """Merge all taps into one if each input, or each output, uses only one: a channel's shift is an isometry."""
    if kernel[0, 0, 0].numel() == 1:
        return kernel
    live = kernel.ne(0).flatten(3)
    if any(bool((live.any(axis).sum(-1) <= 1).all()) for axis in (1, 2)):
        return kernel.flatten(3).sum(-1).reshape(*kernel.shape[:3], *[1] * (kernel.dim() - 3))
    return kernel


def _on_signal(
    kernel: torch.Tensor, spatial: int | Sequence[int] | None, stride: int | Sequence[int]
) -> tuple[torch.Tensor, list[int]]:
    """Return the kernel of stride 1 with as few taps as possible, and the sides of the signal that it is measured on.

    By default that is the smallest signal on which no lag wraps onto another.
    """
    dims = kernel.dim() - 3
    steps = check_per_side(stride, dims, "stride", least=1)
    kernel = _unshifted(kernel if max(steps) == 1 else polyphase(kernel, steps))
    if spatial is None:
        return kernel, [2 * side - 1 for side in kernel.shape[3:]]
    sizes = [spatial] * dims if isinstance(spatial, int) else list(spatial)
    if len(sizes) != dims or any(isinstance(size, bool) or not isinstance(size, int) or size < 1 for size in sizes):
        raise ValueError(f"spatial: expected a positive integer, or {dims} of them; got {spatial!r}")
    if any(size % step for size, step in zip(sizes, steps, strict=True)):
        raise ValueError(f"spatial: expected multiples of the stride {stride!r}; got {spatial!r}")
    return kernel, [size // step for size, step in zip(sizes, steps, strict=True)]
