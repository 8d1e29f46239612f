import pytest
import torch

from orthosparse import BlockConv1x1, BlockLinear, SparseConv, SparseConv1x1, SparseLinear

KINDS = {
    "blocks": lambda **options: BlockLinear(48, 32, 4, 16, **options),
    "entries": lambda **options: SparseLinear(9, 7, 20, **options),
    "block convolution": lambda **options: BlockConv1x1(48, 32, 4, 16, stride=(2, 1), **options),
    "entry convolution": lambda **options: SparseConv1x1(9, 7, 20, stride=(1, 1), **options),
    "taps": lambda **options: SparseConv(6, 7, (3, 2), 50, stride=(2, 1), padding=(1, 0), **options),
    "groups": lambda **options: SparseConv(6, 4, (3, 3), 20, padding="same", groups=2, **options),
}


def filled(kind, generator, **options):
    """Return a module of a kind with random units and values."""
    layer = KINDS[kind](**options)
    room = layer.grid[0] * layer.grid[1]
    layer.move(torch.randperm(room, generator=generator)[: layer.units].sort().values)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return layer


def inputs_of(layer, generator):
    """Return samples for a module."""
    stride = getattr(layer, "stride", None)
    shape = (3, layer.in_features) if stride is None else (3, layer.in_channels, *[5] * len(stride))
    return torch.randn(shape, generator=generator, dtype=layer.values.dtype)


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param
