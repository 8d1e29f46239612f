"""Sparse orthogonal convolutions and their masks: one matrix per group, at one tap of the kernel."""

import math
from collections.abc import Sequence
from typing import Any, Unpack

import torch

from orthosparse.aliases import StartName, StopName, TapName, TensorFloorName
from orthosparse.checks import KERNEL, check_align, check_density, check_fillable
from orthosparse.counts import apportion, count_of, raise_to_floors, resolve
from orthosparse.distributed import write_
from orthosparse.givens import Law, sample_batch
from orthosparse.init import alignment, delta
from orthosparse.init.matrices import core_of
from orthosparse.masks import resize_towards
from orthosparse.orthogonality import group_views
from orthosparse.randomness import derive, draw_seed
from orthosparse.strides import phases_of


def sparse_delta_orthogonal_(
    weight: torch.Tensor,
    density: float | None = None,
    *,
    count: int | None = None,
    groups: int = 1,
    center_density: float | None = None,
    gain: float = 1.0,
    tap: TapName | str | None = None,
    transposed: bool = False,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    generator: torch.Generator | None = None,
    stop: StopName | str = "exact",
    angle: float | None = None,
    start: StartName | str = "identity",
    align: torch.Tensor | None = None,
    core: float | None = None,
    floor: TensorFloorName | str = "error",
    threads: int = 1,
) -> torch.Tensor:
    """Fill a convolution weight with a sparse orthogonal matrix per group at one tap, and return its mask.

    The other active entries start at zero. They are drawn uniformly from all remaining positions, including those at
    the tap (with `align`, first from those in its mask). In a depthwise convolution, each channel has 1 or -1 at one
    tap, with equal probability.

    Args:
        density: fraction of the entries that are active.
        count: number of active entries, instead of `density`.
        groups: groups of the convolution.
        center_density: density of the matrices; by default min(d k, sqrt(d)), where d is the density of the weight and
            k the number of taps. It is clipped to what `density` and the floor allow. The paper's 1000-layer network
            has ``center_density=density``, its other networks the default.
        gain: factor of the matrices.
        tap: "center" is index (side - 1) // 2 of each side; "random" draws a tap for each input channel; "mask" takes
            the tap that each input channel uses most in the mask of `align`, and is the default with `align`.
        transposed: whether the weight is that of a transposed convolution, stored as (in, out, ...).
        stride: stride of the convolution; with `padding` and `dilation` it determines which pixels a tap reads. The
            matrix is then first x (second * stride * stride), where first and second are the first two sides of a
            group's weight. It lies on a window of taps, so that the windows tile the image. With "center" the window
            begins at the tap with index `padding`; the other taps shift columns by whole strides. A kernel smaller than
            its stride never reads some pixels, and its matrix has no columns for them.
        generator: the seed is drawn from it; None takes one from the operating system.
        core: fraction of the active entries that belong to the matrices, instead of `center_density`.
        floor: as in `sparse_orthogonal_`, like `stop`, `angle`, `start`, `align` and `threads`. The floor of a group is
            min(out, in) / groups; with a stride, min(first, second * stride * stride).

    Example:
        >>> weight = torch.empty(8, 8, 3, 3)
        >>> mask = sparse_delta_orthogonal_(weight, density=0.1, generator=torch.Generator().manual_seed(0))
        >>> int(mask.sum()), int((weight != 0).sum())  # round(0.1 * 576), round(sqrt(58 / 576) * 64)
        (58, 20)
    """
    scale = check_fillable(weight, KERNEL, gain)
    check_align(align, weight)
    groups, first, second, *sides = group_views(weight, groups).shape
    phases = phases_of(sides, stride, padding, dilation)
    columns = second * len(phases)
    least, room, size = groups * min(first, columns), groups * first * columns, weight.numel()
    total = resolve(density, count, least, size, floor=floor)
    inside = _inside(total, least, room, size, center_density=center_density, core=core)
    goal = None if align is None else alignment.goal_of(align, total)
    goals = None if goal is None else goal.view(groups, first, second, -1)
    seed = draw_seed(generator)
    positions = delta.taps(
        (groups, first, second, *sides),
        phases,
        tap=("center" if goal is None else "mask") if tap is None else tap,
        transposed=transposed,
        generator=derive(seed, "taps"),
        goal=goals,
    )
    at_taps = None if goals is None else delta.extract(goals, positions)
    law = Law(stop=stop, angle=angle, start=start)
    dtype = weight.dtype if scale == 1 else torch.float64
    values, active = _sparse_matrices(
        (groups, first, columns), inside, at_taps, seed=seed, dtype=dtype, threads=threads, **law
    )
    if total < least:
        active = resize_towards(active, total, at_taps, generator=derive(seed, "kept"))
        values = values * active
    mask = delta.embed(active, positions, sides).view(weight.shape)
    # max: the paper's stopping rules may overshoot.
    mask = resize_towards(mask, max(total, int(active.sum())), goal, generator=derive(seed, "unfrozen"))
    values = values if scale == 1 else (values * scale).to(weight.dtype)
    write_(weight, delta.embed(values, positions, sides).reshape(weight.shape))
    return mask.to(weight.device)


def _inside(
    total: int, least: int, room: int, size: int, *, center_density: float | None = None, core: float | None = None
) -> int:
    """Return how many of a kernel's `total` entries its matrices get, at most `room`.

    `core` is their share of `total`, `center_density` their density. By default that is min(d k, sqrt(d)), k the number
    of taps: at d k all entries are in the matrices, and sqrt(d) is the paper's choice. The result is clipped to
    what orthogonality needs and to what `total` allows.

    Raises:
        ValueError: both are given, or one is out of range.
    """
    if core is not None:
        if center_density is not None:
            raise ValueError(f"core: expected None beside center_density; got {core!r} and {center_density!r}")
        return core_of(total, least, room, core)
    if center_density is None:
        overall = total / size
        center_density = min(overall * (size / room), math.sqrt(overall))
    return max(least, min(count_of(check_density(center_density, "center_density"), room), total))


def _sparse_matrices(
    shape: tuple[int, int, int],
    count: int,
    goals: torch.Tensor | None,
    *,
    seed: int,
    dtype: torch.dtype,
    threads: int,
    **law: Unpack[Law],
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a sparse orthogonal matrix for each group, `count` active entries in all, and their masks."""
    groups, *sides = shape
    draws: dict[str, Any] = {"generator": derive(seed, "rotations"), "dtype": dtype, "threads": threads, **law}
    if sides == [1, 1]:
        # A rotation needs two columns: a random orthogonal 1 x 1 matrix is only a sign.
        values, active = sample_batch(1, (1, 1), 1, **draws)
        signs = 2 * torch.randint(2, (groups, 1, 1), generator=derive(seed, "signs"), device="cpu") - 1
        return values * signs, active.expand(groups, 1, 1)
    if goals is None:
        return sample_batch(groups, (sides[0], sides[1]), _even_shares(count, groups, derive(seed, "shares")), **draws)
    shares = _share_out(count, goals.sum((1, 2)).tolist(), min(sides), math.prod(sides))
    values, active = sample_batch(groups, (sides[0], sides[1]), shares, **draws)
    aligned = [alignment.align(*each) for each in zip(values, active, goals, strict=True)]
    return torch.stack([each[0] for each in aligned]), torch.stack([each[1] for each in aligned])


def _even_shares(count: int, groups: int, generator: torch.Generator) -> list[int]:
    """Split `count` evenly; random groups get one more if it is not divisible."""
    share, more = divmod(count, groups)
    richer = set(torch.randperm(groups, generator=generator, device="cpu")[:more].tolist())
    return [share + (group in richer) for group in range(groups)]


def _share_out(count: int, wanted: Sequence[int], least: int, room: int) -> list[int]:
    """Split `count` over matrices in proportion to the entries of their masks, each between `least` and `room`."""
    # One more for each, so that matrices with empty masks can share too.
    shares = apportion({str(i): n + 1 for i, n in enumerate(wanted)}, count, {str(i): room for i in range(len(wanted))})
    return list(raise_to_floors(shares, dict.fromkeys(shares, least)).values())
