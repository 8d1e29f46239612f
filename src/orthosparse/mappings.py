"""The mappings by layer name that travel between the rooms."""

from collections.abc import Mapping
from typing import TypeAlias

import torch

Counts: TypeAlias = dict[str, int]
Densities: TypeAlias = dict[str, float]
Density: TypeAlias = float | Mapping[str, float]  # of the model, or of each layer
Budget: TypeAlias = int | Counts  # the same, turned into counts
Masks: TypeAlias = dict[str, torch.Tensor]
Scores: TypeAlias = dict[str, torch.Tensor]


class ScoredMasks(dict[str, torch.Tensor]):
    """Masks of a distribution that scores weights; `scores` are what it chose by, the larger the better.

    Masks without scores are random ones: their counts say something, their places do not.
    """

    def __init__(self, masks: Masks, scores: Scores) -> None:
        super().__init__(masks)
        self.scores = scores
