"""The mappings by layer name that travel between the rooms."""

from typing import TypeAlias

import torch

Counts: TypeAlias = dict[str, int]
Densities: TypeAlias = dict[str, float]
Masks: TypeAlias = dict[str, torch.Tensor]
Scores: TypeAlias = dict[str, torch.Tensor]
