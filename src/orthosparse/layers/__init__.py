"""Which tensors of a model are sparsified, and which matrices each of them holds."""

from orthosparse.layers.find import Selector, find_layers, left_dense, summarize
from orthosparse.layers.fused import Split
from orthosparse.layers.layer import Layer, layer_name, unwrapped

__all__ = ["Layer", "Selector", "Split", "find_layers", "layer_name", "left_dense", "summarize", "unwrapped"]
