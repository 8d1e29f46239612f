"""Find the tensors of a model to sparsify, and the matrices that each of them holds."""

from orthosparse.layers.find import Selector, find_layers, left_dense, summarize
from orthosparse.layers.fused import Split
from orthosparse.layers.layer import Layer, layer_name, unwrapped
from orthosparse.layers.tensors import (
    TRANSPARENT,
    LeafParameters,
    is_pruned,
    leaf,
    plain_modules,
    plain_name,
    tensor_names,
)

__all__ = [
    "TRANSPARENT",
    "Layer",
    "LeafParameters",
    "Selector",
    "Split",
    "find_layers",
    "is_pruned",
    "layer_name",
    "leaf",
    "left_dense",
    "plain_modules",
    "plain_name",
    "summarize",
    "tensor_names",
    "unwrapped",
]
