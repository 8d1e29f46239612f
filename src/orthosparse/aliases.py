"""Type aliases: mappings from layer names, and the names that string arguments accept.

String arguments have the type ``Name | str``, because users can add their own names to the tables.
"""

from collections.abc import Mapping
from typing import Literal, TypeAlias

import torch

Counts: TypeAlias = dict[str, int]
Densities: TypeAlias = dict[str, float]
Density: TypeAlias = float | Mapping[str, float]  # one for the model, or one for each layer
Budget: TypeAlias = int | Counts  # the same as counts
Masks: TypeAlias = dict[str, torch.Tensor]
Scores: TypeAlias = dict[str, torch.Tensor]

BackendName: TypeAlias = Literal["auto", "kernel", "python"]
DistributionName: TypeAlias = Literal[
    "dense_ends", "er", "erk", "grasp", "magnitude", "snip", "snip_iterative", "synflow", "uniform"
]
FloorName: TypeAlias = Literal["raise", "partial", "minimal", "error"]
GrowthName: TypeAlias = Literal["gradient", "random", "momentum"]
SchemeName: TypeAlias = Literal["ai", "base", "eoi", "sao", "scaled"]
StartName: TypeAlias = Literal["identity", "permuted"]
StopName: TypeAlias = Literal["exact", "closest", "first"]
StructureName: TypeAlias = Literal["entries", "block:16", "block:32", "block:64", "block:128", "2:4"]
TapName: TypeAlias = Literal["center", "random", "mask"]
TensorFloorName: TypeAlias = Literal["partial", "minimal", "error"]
