"""Sparse orthogonal starts of one weight, and the mask they live on: a matrix, a delta kernel."""

import math
from collections.abc import Sequence
from typing import Any, Unpack

import torch

from orthosparse.checks import KERNEL, MATRIX, check_fillable, describe
from orthosparse.choices import StartName, StopName, StructureName, TapName, TensorFloorName
from orthosparse.distributed import write_
from orthosparse.givens import Law, can_hold, sample, sample_batch
from orthosparse.init import alignment, counts, delta
from orthosparse.init.structured import block_matrix, half_matrix
from orthosparse.masks import resize_towards
from orthosparse.orthogonality import group_views
from orthosparse.randomness import derive, draw_seed
from orthosparse.strides import phases_of
from orthosparse.structures import ENTRIES, TWO_OF_FOUR, check_structure


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
    align: torch.Tensor | None = None,
    core: float | None = None,
    floor: TensorFloorName | str = "error",
    structure: StructureName | str = ENTRIES,
    threads: int = 1,
) -> torch.Tensor:
    """Fill a matrix with a sparse orthogonal one, a product of random Givens rotations, and return its mask.

    Gain and alignment apart, the entries are those of `givens.sample` with the same generator (`givens.sample_blocks`
    for blocks).

    Args:
        gain: multiplies the matrix.
        threads: of the compiled kernel; the bits do not depend on it.
        count: the number of active entries, instead of `density`.
        stop: "exact" meets the count; "closest" and "first" are the paper's rules, which may miss it.
        angle: one angle for all rotations, in radians; by default each draws its own.
        start: "identity", or "permuted" for a random signed permutation.
        align: a mask of the weight's shape, or scores, whose largest are the mask. Rows and columns are permuted so
            that the active entries lie on it as far as that is possible.
        core: the share of the active entries that are the orthogonal matrix, all of them by default, never fewer than
            orthogonality needs. The others start at zero, on the mask of `align` where it has room, else anywhere.
        floor: what to do when fewer than min(n, m) entries are asked for, so that no orthogonal matrix has so few.
            "error" refuses; "partial" fills as many rows as there are entries with one unit entry each, in columns of
            their own, and leaves the rest at zero; "minimal" fills an orthogonal matrix of min(n, m) entries.
        structure: "entries", or "block:64" for whole blocks of 64 x 64 (a power of two from 16 on that divides both
            sides). Densities and floors are then counted in blocks: an orthogonal matrix has at least min(n, m) / 64.
            "2:4" has two of any aligned four entries along rows and along columns: its density is 0.5, four divides
            both sides, and there are no rotations, no `align` and no `core`.
        generator: gives one seed; None: one from the operating system.

    Example:
        >>> weight = torch.empty(4, 4)
        >>> mask = sparse_orthogonal_(weight, density=0.5, generator=torch.Generator().manual_seed(0))
        >>> int(mask.sum()), torch.allclose(weight @ weight.T, torch.eye(4), atol=1e-6)
        (8, True)
    """
    scale = check_fillable(weight, MATRIX, gain)
    shape, dtype = (weight.shape[0], weight.shape[1]), weight.dtype if scale == 1 else torch.float64
    _check_align(align, weight)
    asked: dict[str, Any] = {"density": density, "count": count, "floor": floor, "align": align, "core": core}
    check_rotations(check_structure(structure), stop=stop, angle=angle, start=start, align=align, core=core)
    if structure == ENTRIES:
        law = Law(stop=stop, angle=angle, start=start)
        draws: dict[str, Any] = {"generator": generator, "dtype": dtype, "threads": threads, **law}
        draws["out"] = weight.detach() if scale == 1 and can_hold(weight) else None
        values, mask = _entry_matrix(shape, **asked, **draws)
    elif structure == TWO_OF_FOUR:
        values, mask = half_matrix(shape, density=density, count=count, generator=generator, dtype=dtype)
    else:
        values, mask = block_matrix(shape, structure, stop=stop, start=start, generator=generator, dtype=dtype, **asked)
    if values.data_ptr() != weight.data_ptr():
        write_(weight, values if scale == 1 else values.mul_(scale))
    active: torch.Tensor = mask.to(weight.device)
    return active


def check_rotations(structure: str, *, stop: str, angle: float | None, start: str, align: Any, core: Any) -> None:
    """Raise a ValueError for an option that the rotations of a structure do not have; 2:4 has no rotations at all."""
    if structure == TWO_OF_FOUR:
        changed = {"stop": stop != "exact", "angle": angle is not None, "start": start != "identity"}
        changed |= {"align": align is not None, "core": core is not None}
        for name in (name for name, differs in changed.items() if differs):
            raise ValueError(f"{name}: expected its default with structure '2:4', which has no rotations to change")
    elif structure != ENTRIES and angle is not None:
        raise ValueError(f"angle: expected None, as rotations of blocks have no angle; got {angle!r}")


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

    The entries that the mask still lacks are chosen uniformly among all others, those at the tap included (with
    `align`: first among those of that mask), and start at zero. Depthwise, each channel has one tap of 1 or -1 by a
    fair coin.

    Args:
        gain: multiplies the matrix.
        transposed: the weight is that of a transposed convolution, stored as (in, out, ...).
        groups: those of the convolution.
        count: the number of active entries, instead of `density`.
        center_density: density of the matrices, by default min(d k, sqrt(d)), d being the weight's density and k the
            number of taps; clipped to what `density` and the floor allow. The paper's 1000-layer network has
            ``center_density=density``; its other networks have the default.
        tap: "center" is index (side - 1) // 2 of each side; "random" shifts each input channel to a tap of its own;
            "mask" shifts it to the tap that it uses most in the mask of `align`, and is the default beside `align`.
        stride: of the convolution; beside it, `padding` and `dilation` say which pixels a tap meets. The matrix is then
            first x (second * stride * stride), on a window of taps such that the windows tile the picture. With
            "center" the window begins at the tap of index `padding`, and the other taps shift columns by whole strides.
            A kernel smaller than its stride never reads some pixels, and its matrix has no columns for them.
        core: the share of the active entries that are the matrices, instead of `center_density`.
        floor: as in `sparse_orthogonal_`, like `stop`, `angle`, `start`, `align` and `threads`; a group's is
            min(out, in) / groups, with a stride min(first, second * stride * stride).
        generator: gives one seed; None: one from the operating system.

    Example:
        >>> weight = torch.empty(8, 8, 3, 3)
        >>> mask = sparse_delta_orthogonal_(weight, density=0.1, generator=torch.Generator().manual_seed(0))
        >>> int(mask.sum()), int((weight != 0).sum())  # round(0.1 * 576), round(sqrt(58 / 576) * 64)
        (58, 20)
    """
    scale = check_fillable(weight, KERNEL, gain)
    _check_align(align, weight)
    groups, first, second, *sides = group_views(weight, groups).shape
    phases = phases_of(sides, stride, padding, dilation)
    columns = second * len(phases)
    least, room, size = groups * min(first, columns), groups * first * columns, weight.numel()
    total = counts.resolve(density, count, least, size, floor=floor)
    inside = counts.inside(total, least, room, size, center_density=center_density, core=core)
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


def _check_align(align: torch.Tensor | None, weight: torch.Tensor) -> None:
    if align is None:
        return
    if not isinstance(align, torch.Tensor) or align.is_complex():
        raise TypeError(f"align: expected a bool mask, or scores; got {describe(align)}")
    if align.shape != weight.shape:
        raise ValueError(f"align: expected the weight's shape {tuple(weight.shape)}; got {tuple(align.shape)}")


def _entry_matrix(
    shape: tuple[int, int],
    *,
    density: float | None,
    count: int | None,
    floor: str,
    align: torch.Tensor | None,
    core: float | None,
    **draws: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return an orthogonal matrix and its mask; a partial isometry where too few entries are asked for.

    `draws` are keywords of `givens.sample`; the matrix may be its `out`.
    """
    least, size = min(shape), math.prod(shape)
    total = counts.resolve(density, count, least, size, floor=floor)
    inside = counts.core_of(total, least, size, core)
    goal = None if align is None else alignment.goal_of(align, total)
    values, mask = sample(shape, inside, **draws)
    if goal is not None:
        values, mask = alignment.align(values, mask, goal)
    if total != inside:
        # max: the paper's stopping rules may overshoot.
        wanted = total if total < least else max(total, int(mask.sum()))
        mask = resize_towards(mask, wanted, goal, generator=derive(draw_seed(draws["generator"]), "kept"))
        values = values * mask
    return values, mask


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
        # A rotation needs two columns: of a random orthogonal 1 x 1 matrix only the sign is left.
        values, active = sample_batch(1, (1, 1), 1, **draws)
        signs = 2 * torch.randint(2, (groups, 1, 1), generator=derive(seed, "signs"), device="cpu") - 1
        return values * signs, active.expand(groups, 1, 1)
    if goals is None:
        return sample_batch(groups, (sides[0], sides[1]), _shared(count, groups, derive(seed, "shares")), **draws)
    shares = counts.share_out(count, goals.sum((1, 2)).tolist(), min(sides), math.prod(sides))
    values, active = sample_batch(groups, (sides[0], sides[1]), shares, **draws)
    aligned = [alignment.align(*each) for each in zip(values, active, goals, strict=True)]
    return torch.stack([each[0] for each in aligned]), torch.stack([each[1] for each in aligned])


def _shared(count: int, groups: int, generator: torch.Generator) -> list[int]:
    """Split `count` evenly; random groups get one more where it does not divide."""
    share, more = divmod(count, groups)
    richer = set(torch.randperm(groups, generator=generator, device="cpu")[:more].tolist())
    return [share + (group in richer) for group in range(groups)]
