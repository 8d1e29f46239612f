"""The words that arguments take, as types: an editor offers them, a type checker knows them.

Arguments are typed ``Name | str``: a word that a user has added to a table is as good as ours.
"""

from typing import Literal, TypeAlias

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
