"""Which tensors of a model are sparsified, and which matrices each of them holds."""

from orthosparse.layers.find import Split, find_layers
from orthosparse.layers.layer import Layer, layer_name, unwrapped
from orthosparse.layers.skipped import left_dense, summarize

__all__ = ["Layer", "Split", "find_layers", "layer_name", "left_dense", "summarize", "unwrapped"]
