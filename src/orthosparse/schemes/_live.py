"""Fill the channels that a mask uses; the other rows and columns stay empty."""

from collections.abc import Callable
from typing import Any

import torch


def fill_live_(
    weight: torch.Tensor, *, fill: Callable[..., torch.Tensor], align: torch.Tensor, **options: Any
) -> torch.Tensor:
    """Fill the rows and columns of `weight` that `align` uses, the others with zeros, and return the mask.

    A mask has at least as many entries as rows, so those that it uses can always be orthogonal, or their columns can.

    Args:
        fill: a function of `init`, called with a smaller weight and its part of `align`.

    Example:
        >>> from orthosparse.init import sparse_orthogonal_
        >>> goal, weight = torch.tensor([[True, False, True], [False, False, False]]), torch.empty(2, 3)
        >>> mask = fill_live_(weight, fill=sparse_orthogonal_, align=goal, count=2)
        >>> torch.equal(mask, goal), round(weight.norm().item(), 6)
        (True, 1.0)
    """
    pairs = align.flatten(2).any(-1) if align.dim() > 2 else align
    rows, cols = pairs.any(1).nonzero(), pairs.any(0).nonzero()[:, 0]
    mask = torch.zeros_like(align)
    weight.zero_()
    if len(rows):
        inner = weight[rows, cols]
        mask[rows, cols] = fill(inner, align=align[rows, cols], **options).to(mask.device)
        weight[rows, cols] = inner
    return mask
