"""The sides of a layer's matrices, on which the Erdős–Rényi densities depend."""

from orthosparse.layers import Layer


def sides_of(layer: Layer) -> int:
    """Return n_in + n_out, summed over the matrices that lie in a fused tensor: fusing them changes nothing.

    A convolution counts by its stored sides, (out, in / groups), whatever its groups.
    """
    first, second = layer.shape[layer.stacked : layer.stacked + 2]
    outputs, inputs = (second, first) if layer.transposed else (first, second)
    return layer.experts * (outputs + len(layer.parts) * inputs)
