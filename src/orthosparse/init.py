"""Fill ONE weight in place with an exactly orthogonal start, dense or sparse.

The sparse functions return the mask of active entries, a bool tensor of the weight's shape and device; it is never
``weight != 0``, as an active entry may start at zero. The dense ones return the weight.

All of them draw in float64 on the CPU, multiply by `gain`, and cast to the weight's dtype and device once, so the same
state of `generator` gives the same numbers everywhere; without a generator the operating system gives a fresh seed.
Weights may be float16, bfloat16, float32 or float64, on any device, with any strides, and may require gradients. Where
an argument is refused (ValueError, TypeError) the weight is as it was.

A matrix is n x m with orthonormal rows or columns, whichever are fewer. A convolution weight is
(out, in / groups, *kernel), or (in, out / groups, *kernel) when transposed; each group gets an orthogonal map of its
own, and with stride 1 and circular padding the convolution is then orthogonal as a whole: it keeps norms where it has
as many outputs as inputs or more, and its adjoint does where it has fewer.
"""

from typing import Unpack

import torch

from orthosparse import _init_counts, _init_delta, _init_dense, givens, masks
from orthosparse._orthogonality_tensors import KERNEL, MATRIX, blocks_of, check_fillable, check_gain
from orthosparse.choices import InitFloorName, StartName, StopName, TapName
from orthosparse.givens import Law
from orthosparse.randomness import derive, draw_seed


def orthogonal_(weight: torch.Tensor, *, gain: float = 1.0, generator: torch.Generator | None = None) -> torch.Tensor:
    """Fill a matrix with a dense orthogonal one, uniform among all of them (Haar), times `gain`.

    Example:
        >>> weight = orthogonal_(torch.empty(2, 3), generator=torch.Generator().manual_seed(0))
        >>> torch.allclose(weight @ weight.T, torch.eye(2), atol=1e-6)
        True
    """
    scale = _checked(weight, gain, MATRIX)
    matrix = _init_dense.haar(1, *weight.shape, generator=derive(draw_seed(generator), "matrix"))[0]
    return _filled(weight, matrix * scale)


def delta_orthogonal_(
    weight: torch.Tensor,
    *,
    groups: int = 1,
    gain: float = 1.0,
    tap: TapName | str = "center",
    transposed: bool = False,
    generator: torch.Generator | None = None,
) -> torch.Tensor:
    """Fill a convolution weight with a dense orthogonal matrix per group at one tap, and zeros elsewhere.

    Args:
        tap: "center" is index (side - 1) // 2 of each side; "random" shifts each input channel to a tap of its own.

    Example:
        >>> weight = delta_orthogonal_(torch.empty(1, 1, 3), generator=torch.Generator().manual_seed(0))
        >>> weight.abs()
        tensor([[[0., 1., 0.]]])
    """
    scale = _checked(weight, gain, KERNEL)
    groups, first, second, *sides = blocks_of(weight, groups).shape
    seed = draw_seed(generator)
    positions = _init_delta.taps(
        groups, first if transposed else second, sides, tap=tap, generator=derive(seed, "taps")
    )
    matrices = _init_dense.haar(groups, first, second, generator=derive(seed, "matrix"))
    return _filled(weight, _init_delta.embedded(matrices * scale, positions, sides, transposed=transposed))


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

    Example:
        >>> from orthosparse.orthogonality import is_orthogonal
        >>> is_orthogonal(conv_orthogonal_(torch.empty(4, 3, 3, 2), generator=torch.Generator().manual_seed(0)))
        True
    """
    del transposed  # the adjoint of an orthogonal map is orthogonal: one draw serves both ways to store it
    scale = _checked(weight, gain, KERNEL)
    groups, first, second, *sides = blocks_of(weight, groups).shape
    generator = derive(draw_seed(generator), "kernel")
    return _filled(weight, _init_dense.kernels(groups, first, second, sides, generator=generator) * scale)


def sparse_orthogonal_(
    weight: torch.Tensor,
    density: float | None = None,
    *,
    count: int | None = None,
    gain: float = 1.0,
    generator: torch.Generator | None = None,
    stop: StopName | str = "exact",
    angle: float | None = None,
    start: StartName | str = "identity",
    floor: InitFloorName | str = "error",
    threads: int = 1,
) -> torch.Tensor:
    """Fill a matrix with a sparse orthogonal one, a product of random Givens rotations, and return its mask.

    Gain apart, the entries are those of `givens.sample` with the same generator.

    Args:
        count: the number of active entries, instead of `density`.
        stop: "exact" meets the count; "closest" and "first" are the paper's rules, which may miss it.
        angle: one angle for all rotations, in radians; by default each draws its own.
        start: "identity", or "permuted" for a random signed permutation.
        floor: what to do when fewer than min(n, m) entries are asked for, so that no orthogonal matrix has so few.
            "error" refuses; "partial" fills as many rows as there are entries with one unit entry each, in columns of
            their own, and leaves the rest at zero; "minimal" fills an orthogonal matrix of min(n, m) entries.

    Example:
        >>> weight = torch.empty(4, 4)
        >>> mask = sparse_orthogonal_(weight, density=0.5, generator=torch.Generator().manual_seed(0))
        >>> int(mask.sum()), torch.allclose(weight @ weight.T, torch.eye(4), atol=1e-6)
        (8, True)
    """
    scale = _checked(weight, gain, MATRIX)
    least = min(weight.shape)
    total = _init_counts.settled(density, count, least, weight.numel(), floor=floor)
    values, mask = givens.sample(
        (weight.shape[0], weight.shape[1]),
        max(total, least),
        stop=stop,
        angle=angle,
        start=start,
        generator=generator,
        dtype=weight.dtype if scale == 1 else torch.float64,
        threads=threads,
    )
    if total < least:
        mask = masks.resize(mask, total, generator=derive(draw_seed(generator), "kept"))
        values = values * mask
    _filled(weight, values if scale == 1 else values.mul_(scale))
    active: torch.Tensor = mask.to(weight.device)
    return active


def sparse_delta_orthogonal_(
    weight: torch.Tensor,
    density: float | None = None,
    *,
    count: int | None = None,
    groups: int = 1,
    center_density: float | None = None,
    gain: float = 1.0,
    tap: TapName | str = "center",
    transposed: bool = False,
    generator: torch.Generator | None = None,
    stop: StopName | str = "exact",
    angle: float | None = None,
    start: StartName | str = "identity",
    floor: InitFloorName | str = "error",
    threads: int = 1,
) -> torch.Tensor:
    """Fill a convolution weight with a sparse orthogonal matrix per group at one tap, and return its mask.

    The entries that the mask still lacks are chosen uniformly among all others, those at the tap included, and start at
    zero. Depthwise, each channel has one tap of 1 or -1 by a fair coin.

    Args:
        count: the number of active entries, instead of `density`.
        center_density: density of the matrices, by default min(d k, sqrt(d)), d being the weight's density and k the
            number of taps; clipped to what `density` and the floor allow. The paper's 1000-layer network has
            ``center_density=density``; its other networks have the default.
        tap: "center" is index (side - 1) // 2 of each side; "random" shifts each input channel to a tap of its own.
        floor: as in `sparse_orthogonal_`, like `stop`, `angle`, `start` and `threads`; a group's is
            min(out, in) / groups.

    Example:
        >>> weight = torch.empty(8, 8, 3, 3)
        >>> mask = sparse_delta_orthogonal_(weight, density=0.1, generator=torch.Generator().manual_seed(0))
        >>> int(mask.sum()), int((weight != 0).sum())  # round(0.1 * 576), round(sqrt(58 / 576) * 64)
        (58, 20)
    """
    scale = _checked(weight, gain, KERNEL)
    groups, first, second, *sides = blocks_of(weight, groups).shape
    least, room, size = groups * min(first, second), groups * first * second, weight.numel()
    total = _init_counts.settled(density, count, least, size, floor=floor)
    inside = _init_counts.center(total, least, room, size, center_density)
    seed = draw_seed(generator)
    positions = _init_delta.taps(
        groups, first if transposed else second, sides, tap=tap, generator=derive(seed, "taps")
    )
    law = Law(stop=stop, angle=angle, start=start)
    dtype = weight.dtype if scale == 1 else torch.float64
    values, active = _sparse_matrices(groups, (first, second), inside, seed=seed, dtype=dtype, threads=threads, **law)
    if total < least:
        active = masks.resize(active, total, generator=derive(seed, "kept"))
        values = values * active
    mask = _init_delta.embedded(active, positions, sides, transposed=transposed)
    # max: the paper's stopping rules may overshoot.
    mask = masks.resize(mask, max(total, int(active.sum())), generator=derive(seed, "unfrozen"))
    values = values if scale == 1 else (values * scale).to(weight.dtype)
    _filled(weight, _init_delta.embedded(values, positions, sides, transposed=transposed))
    return mask.reshape(weight.shape).to(weight.device)


def _sparse_matrices(
    groups: int,
    shape: tuple[int, int],
    count: int,
    *,
    seed: int,
    dtype: torch.dtype,
    threads: int,
    **law: Unpack[Law],
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a sparse orthogonal matrix for each group, `count` active entries in all, and their masks."""
    generator = derive(seed, "rotations")
    if shape != (1, 1):
        counts = _shared(count, groups, derive(seed, "shares"))
        return givens.sample_batch(groups, shape, counts, generator=generator, dtype=dtype, threads=threads, **law)
    # A rotation needs two columns: of a random orthogonal 1 x 1 matrix only the sign is left.
    values, active = givens.sample_batch(1, shape, 1, generator=generator, dtype=dtype, threads=threads, **law)
    signs = 2 * torch.randint(2, (groups, 1, 1), generator=derive(seed, "signs"), device="cpu") - 1
    return values * signs, active.expand(groups, 1, 1)


def _checked(weight: torch.Tensor, gain: float, sides: tuple[int, ...]) -> float:
    """Return the gain, once both are known to be good."""
    check_fillable(weight, sides)
    return check_gain(gain, torch.finfo(weight.dtype).max)


def _shared(count: int, groups: int, generator: torch.Generator) -> list[int]:
    """Split `count` evenly; random groups get one more where it does not divide."""
    share, more = divmod(count, groups)
    richer = set(torch.randperm(groups, generator=generator, device="cpu")[:more].tolist())
    return [share + (group in richer) for group in range(groups)]


@torch.no_grad()
def _filled(weight: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    return weight.copy_(values.reshape(weight.shape))
