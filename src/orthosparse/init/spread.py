"""Convolutions of many taps: two sparse orthogonal matrices, and between them a shift of every channel.

With A and B orthogonal, and S the shift of each channel between them to a tap of its own, the convolution A S B is
orthogonal, as each of the three is, wherever pictures wrap around. With B the identity it has one tap a channel.
"""

import math
from typing import Unpack

import torch

from orthosparse.distributed import write_
from orthosparse.givens import Law, sample
from orthosparse.init.sparse import core_of
from orthosparse.masks import resize_towards
from orthosparse.randomness import derive, draw_seed
from orthosparse.threads import on_threads

_HALVINGS = 12  # of the range of densities in which the largest that fits is looked for


def sparse_spread_orthogonal_(
    weight: torch.Tensor,
    *,
    count: int,
    gain: float = 1.0,
    core: float | None = None,
    generator: torch.Generator | None = None,
    threads: int = 1,
    **law: Unpack[Law],
) -> torch.Tensor:
    """Fill a convolution weight, of one group and no stride, with an orthogonal kernel of many taps; return its mask.

    The kernel has as many of the `count` entries as such a product can; the others are drawn anywhere, at zero.

    Args:
        count: the number of active entries, at least as many as the shorter of both sides has channels.
        core: the share of them that the kernel has at most, never below what orthogonality needs.
        law: keywords of `givens.sample`.

    Example:
        >>> weight = torch.empty(16, 16, 3, 3, dtype=torch.float64)
        >>> mask = sparse_spread_orthogonal_(weight, count=230, generator=torch.Generator().manual_seed(0))
        >>> whole = weight.sum((2, 3))  # the matrix that constant pictures meet
        >>> int(mask.sum()), torch.allclose(whole @ whole.T, torch.eye(16).double())
        (230, True)
    """
    seed, (first, second) = draw_seed(generator), weight.shape[:2]
    most = core_of(count, min(first, second), weight.numel(), core)
    kernel, active = _largest(first, second, weight[0, 0].numel(), most, seed, threads, law)
    write_(weight, (gain * kernel).reshape(weight.shape))
    mask = resize_towards(active.view(weight.shape), count, None, generator=derive(seed, "unfrozen"))
    return mask.to(weight.device)


def _largest(
    first: int, second: int, taps: int, count: int, seed: int, threads: int, law: Law
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a kernel [first, second, taps] with at most `count` entries, as near as halving finds it, and its mask."""
    inner = max(first, second)
    positions = torch.randint(taps, (inner,), generator=derive(seed, "taps"), device="cpu")
    channels = [(positions == tap).nonzero()[:, 0] for tap in range(taps)]

    def drawn(entries: float) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the kernel of factors that have so many entries a line of their shorter sides."""
        (left, left_mask), (right, right_mask) = (
            sample(
                shape,
                min(round(entries * min(shape)), math.prod(shape)),
                generator=derive(seed, side),
                threads=threads,
                **law,
            )
            for side, shape in (("first", (first, inner)), ("second", (inner, second)))
        )
        with on_threads(1):
            kernel = torch.stack([left[:, at] @ right[at] for at in channels], -1)
            paths = torch.stack([left_mask[:, at].float() @ right_mask[at].float() for at in channels], -1)
        return kernel, paths > 0

    fits, least, most = drawn(1.0), 1.0, float(inner)
    for _ in range(_HALVINGS):
        middle = (least + most) / 2
        found = drawn(middle)
        if int(found[1].sum()) <= count:
            fits, least = found, middle
        else:
            most = middle
    return fits
