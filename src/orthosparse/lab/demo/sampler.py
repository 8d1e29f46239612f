"""The sampler at work: a sparse orthogonal matrix beside a dense one and one that was masked at random."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from orthosparse import givens, init, isometry
from orthosparse.randomness import derive, draw_seed

_REPEATS = 3


@dataclass(frozen=True, eq=False)
class Sample:
    """One square matrix, how it was made, and what it is worth.

    Attributes:
        role: whose colour it has: eoi, dense or base.
        seconds: the shortest of a few draws.
        singular_values: all of them, falling.
    """

    role: str
    title: str
    values: Tensor
    mask: Tensor
    seconds: float
    score: float
    singular_values: Tensor

    @property
    def density(self) -> float:
        """The fraction of entries that are active."""
        return int(self.mask.sum()) / self.mask.numel()


def compare(size: int, density: float, *, generator: torch.Generator | None = None) -> list[Sample]:
    """Return a `size` x `size` matrix by Givens rotations, one by QR, and the latter times a random mask.

    Example:
        >>> [round(sample.density, 2) for sample in compare(10, 0.2, generator=torch.Generator().manual_seed(0))]
        [0.2, 1.0, 0.2]
    """
    seed, count = draw_seed(generator), round(density * size**2)

    def rotated() -> tuple[Tensor, Tensor]:
        return givens.sample((size, size), count, generator=derive(seed, "rotations"))

    def dense() -> tuple[Tensor, Tensor]:
        values = torch.empty(size, size, dtype=torch.float64)
        return init.orthogonal_(values, generator=derive(seed, "dense")), torch.ones(size, size, dtype=torch.bool)

    def masked() -> tuple[Tensor, Tensor]:
        chosen = torch.randperm(size**2, generator=derive(seed, "mask"))[:count]
        mask = torch.zeros(size**2, dtype=torch.bool).index_fill_(0, chosen, True).view(size, size)
        return dense()[0] * mask, mask

    return [
        _sampled("eoi", "sparse orthogonal (Givens rotations)", rotated),
        _sampled("dense", "dense orthogonal (QR)", dense),
        _sampled("base", "dense orthogonal, masked at random", masked),
    ]


def _sampled(role: str, title: str, draw: Callable[[], tuple[Tensor, Tensor]]) -> Sample:
    seconds = []
    for _ in range(_REPEATS):
        start = time.perf_counter()
        values, mask = draw()
        seconds.append(time.perf_counter() - start)
    score = isometry.orthogonality_score(values)
    return Sample(role, title, values, mask, min(seconds), score, torch.linalg.svdvals(values))
