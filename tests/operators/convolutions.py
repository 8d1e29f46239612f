"""Convolutions with zeros in their weights, for tests."""

import torch
from hypothesis import strategies as st
from torch import nn

from orthosparse.operators import csr_tables, transposed_tables
from orthosparse.operators.windows import Geometry

KINDS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
sizes = st.integers(1, 4)


@st.composite
def convolutions(draw):
    """A convolution with zeros in its weight, and images for it."""
    dims = draw(st.integers(1, 3))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    groups = draw(st.integers(1, 3))
    each = [draw(st.tuples(sizes, st.integers(1, 3), st.integers(0, 2), st.integers(1, 2))) for _ in range(dims)]
    kernel, stride, padding, dilation = map(tuple, zip(*each, strict=True))
    channels = groups * draw(st.integers(1, 3)), groups * draw(st.integers(1, 3))
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    layer = KINDS[dims - 1](*channels, kernel, bias=draw(st.booleans()), dtype=torch.float64, **options)
    layer.requires_grad_(False)
    layer.weight.normal_(generator=generator).mul_(torch.rand(layer.weight.shape, generator=generator) < 0.5)
    least = [max(1, d * (k - 1) + 1 - 2 * p) for k, p, d in zip(kernel, padding, dilation, strict=True)]
    spatial = [size + draw(st.integers(0, 6)) for size in least]
    x = torch.randn(draw(st.integers(1, 3)), channels[0], *spatial, generator=generator, dtype=torch.float64)
    return layer, x


def entries_of(layer):
    """Return the values of a layer's weight that are not zero, the five tables of where they lie, and its geometry."""
    weight, groups = layer.weight.detach().flatten(1), layer.groups
    rows, columns = weight.nonzero(as_tuple=True)
    values = weight[rows, columns][None]
    columns = columns + rows // (len(weight) // groups) * weight.shape[1]
    geometry = Geometry(layer.kernel_size, layer.stride, layer.padding, layer.dilation)
    row_starts, columns, *_ = csr_tables(rows, columns, (len(weight), groups * weight.shape[1]))
    return values, (row_starts, columns, *transposed_tables(rows, columns, layer.in_channels, geometry)), geometry
