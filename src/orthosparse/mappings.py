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
