"""The sides of a layer's matrices, on which the Erdős–Rényi densities depend."""

from orthosparse.layers import Layer


def sides_of(layer: Layer) -> int:
    """Return n_in + n_out, summed over the matrices that lie in a fused tensor: fusing them changes nothing.

    A convolution counts by its stored sides, (out, in / groups), whatever its groups.
    """
    inputs, outputs = layer.shape[0 if layer.transposed else 1], layer.shape[1 if layer.transposed else 0]
    return outputs + len(layer.parts) * inputs
