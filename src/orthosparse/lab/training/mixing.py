"""Mixup and cutmix: a batch mixed with itself, and its targets."""

import torch
from torch import Tensor
from torch.nn import functional

from orthosparse.randomness import derive


def mix(
    images: Tensor, labels: Tensor, classes: int, *, mixup: float, cutmix: float, seed: int, position: tuple[int, ...]
) -> tuple[Tensor, Tensor]:
    """Return the images mixed with the batch in reverse order, and target probabilities [n, classes].

    Args:
        mixup, cutmix: parameters of the Beta distributions, 0 for none; with both, each batch draws one of them.
        seed, position: all draws depend only on these (the run's seed; epoch, step and rank).

    Raises:
        ValueError: both are 0.
    """
    if not (mixup or cutmix):
        raise ValueError("mixup, cutmix: expected one of them above 0; got 0 and 0")
    generator = derive(seed, "mix", *position)
    coin = torch.rand((), generator=generator).item() < 0.5
    pasted = cutmix > 0 and (mixup == 0 or coin)
    share = _beta(cutmix if pasted else mixup, generator)
    if pasted:
        images, share = _paste(images, share, generator)
    else:
        images = share * images + (1 - share) * images.flip(0)
    target = functional.one_hot(labels, classes).to(images.dtype)
    return images, share * target + (1 - share) * target.flip(0)


def _beta(alpha: float, generator: torch.Generator) -> float:
    # Beta(a, a) is X / (X + Y) with X, Y ~ Gamma(a); in float64, where two tiny draws do not both underflow.
    one, two = torch._standard_gamma(torch.full((2,), alpha, dtype=torch.float64), generator=generator).tolist()
    return float(one / (one + two))


def _paste(images: Tensor, share: float, generator: torch.Generator) -> tuple[Tensor, float]:
    """Return the images with a box of area (1 - share) from their partners, and the share of their own pixels."""
    height, width = images.shape[-2:]
    side = (1 - share) ** 0.5
    row, column = torch.rand(2, generator=generator).tolist()
    top, bottom = _edges(row, height, side)
    left, right = _edges(column, width, side)
    mixed = images.clone()
    mixed[..., top:bottom, left:right] = images.flip(0)[..., top:bottom, left:right]
    return mixed, 1 - (bottom - top) * (right - left) / (height * width)


def _edges(centre: float, length: int, side: float) -> tuple[int, int]:
    middle, half = int(centre * length), int(side * length) // 2
    return max(middle - half, 0), min(middle + half, length)
