"""How many units move at an update, and which are dropped and grown: exact counts, ties broken by index."""

import math

import torch

from orthosparse.hardware import precise
from orthosparse.structures import means_of


def sizes_of(values: torch.Tensor, block: int) -> torch.Tensor:
    """Return the values that units are ranked by: the entries themselves, or the root mean square of each block.

    Example:
        >>> sizes_of(torch.tensor([[3.0, 4.0], [0.0, 0.0]]), 2)
        tensor([[2.5000]])
    """
    if block == 1:
        return values
    return means_of(precise(values).square(), block).sqrt()


def drop_smallest(weight: torch.Tensor, mask: torch.Tensor, number: int) -> torch.Tensor:
    """Return `mask` without its `number` entries of smallest magnitude.

    Example:
        >>> drop_smallest(torch.tensor([3.0, -1.0, 0.0, 2.0]), torch.tensor([True, True, False, True]), 1)
        tensor([ True, False, False,  True])
    """
    magnitude = weight.abs().masked_fill(~mask, -1.0)  # inactive ones rank below every active one
    return _largest(magnitude, int(mask.sum()) - number)


def grow_largest(score: torch.Tensor, mask: torch.Tensor, number: int) -> torch.Tensor:
    """Return `mask` with the `number` inactive entries of largest |score| added.

    Example:
        >>> grow_largest(torch.tensor([9.0, -1.0, 0.5]), torch.tensor([True, False, False]), 1)
        tensor([ True,  True, False])
    """
    return mask | _largest(score.abs().masked_fill(mask, -1.0), number)


def direction_of(gradient: torch.Tensor) -> torch.Tensor:
    """Return `gradient` divided by its norm, whatever the loss was multiplied by; it must not be zero.

    Example:
        >>> direction_of(torch.tensor([3e30, -4e30]))
        tensor([ 0.6000, -0.8000])
    """
    scaled = gradient / gradient.abs().max()  # so that the squares stay in the range of floats
    return scaled.div(torch.linalg.vector_norm(scaled))


def _largest(score: torch.Tensor, number: int) -> torch.Tensor:
    """Return the mask of the `number` largest entries; a stable sort makes all ranks and devices break ties equally."""
    order = score.flatten().sort(descending=True, stable=True).indices
    chosen = torch.zeros(score.numel(), dtype=torch.bool, device=score.device)
    chosen[order[:number]] = True
    return chosen.view(score.shape)


def cosine(fraction: float, step: int, end: float) -> float:
    """Return `fraction` annealed to 0 at step `end` along half a cosine (Evci et al. 2020, section 3).

    Example:
        >>> [round(cosine(0.5, step, 100), 3) for step in (0, 50, 100, 150)]
        [0.5, 0.25, 0.0, 0.0]
    """
    return fraction / 2 * (1 + math.cos(math.pi * min(step / end, 1.0)))
