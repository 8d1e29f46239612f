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
    """Masks by layer name, and the scores that chose them: the larger the better, in the shapes of the masks.

    A distribution returns them where it says which weights to keep. Masks without scores are random ones: their counts
    say something, their places do not.

    Args:
        masks: bool, by layer name.
        scores: what they were chosen by.

    Example:
        >>> scores = {"fc": torch.tensor([[1.0, 3.0]])}
        >>> ScoredMasks({"fc": scores["fc"] > 2}, scores)
        {'fc': tensor([[False,  True]])}
    """

    def __init__(self, masks: Masks, scores: Scores) -> None:
        super().__init__(masks)
        self.scores = scores
