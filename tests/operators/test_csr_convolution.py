"""Convolutions of entries: those of torch, for every geometry."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from orthosparse.deploying.modules import EntriesConv
from orthosparse.operators import has_convolutions

pytestmark = pytest.mark.skipif(not has_convolutions(), reason="the kernel was not built")
KINDS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
sides = st.integers(1, 4)


@st.composite
def convolutions(draw):
    """A convolution with zeros in its weight, and pictures for it."""
    dims = draw(st.integers(1, 3))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    groups = draw(st.integers(1, 3))
    each = [draw(st.tuples(sides, st.integers(1, 3), st.integers(0, 2), st.integers(1, 2))) for _ in range(dims)]
    kernel, stride, padding, dilation = map(tuple, zip(*each, strict=True))
    channels = groups * draw(st.integers(1, 3)), groups * draw(st.integers(1, 3))
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    layer = KINDS[dims - 1](*channels, kernel, bias=draw(st.booleans()), dtype=torch.float64, **options)
    layer.requires_grad_(False)
    layer.weight.normal_(generator=generator).mul_(torch.rand(layer.weight.shape, generator=generator) < 0.5)
    least = [max(1, d * (k - 1) + 1 - 2 * p) for k, p, d in zip(kernel, padding, dilation, strict=True)]
    picture = [side + draw(st.integers(0, 6)) for side in least]
    x = torch.randn(draw(st.integers(1, 3)), channels[0], *picture, generator=generator, dtype=torch.float64)
    return layer, x


@given(convolutions())
def test_the_convolution_is_torchs(drawn):
    layer, x = drawn
    y = EntriesConv(layer)(x)
    torch.testing.assert_close(y, layer(x))
    assert y.is_contiguous()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("groups", [1, 8])
def test_pictures_may_lie_channels_last(dtype, groups, generator):
    layer = nn.Conv2d(8, 8, 3, padding=1, stride=2, groups=groups, dtype=dtype).requires_grad_(False)
    x = torch.randn(2, 8, 9, 7, generator=generator, dtype=dtype).contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(EntriesConv(layer)(x), layer(x).contiguous())


def test_the_operator_agrees_with_its_fake_and_compiles(generator):
    layer = nn.Conv2d(3, 4, 3, padding=1, stride=2).requires_grad_(False)
    module, x = EntriesConv(layer), torch.randn(2, 3, 9, 8, generator=generator)
    arguments = (x, module.values, module.bias, module.row_starts, module.columns, *map(list, module.geometry))
    operator = torch.ops.orthosparse.csr_convolution.default
    torch.library.opcheck(operator, arguments, test_utils=["test_schema", "test_faketensor"])
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    with torch.inference_mode():
        torch.testing.assert_close(compiled(x), layer(x))


def test_an_empty_weight_leaves_the_bias(generator):
    layer = nn.Conv2d(3, 4, 3, padding=1).requires_grad_(False)
    layer.weight.zero_()
    torch.testing.assert_close(EntriesConv(layer)(torch.ones(2, 3, 5, 5)), layer(torch.ones(2, 3, 5, 5)))


@pytest.mark.parametrize(
    ("shape", "dtype", "message"),
    [
        ((1, 4, 5, 5), torch.float32, r"x: expected pictures of shape \[batch, 3, side, side\]"),
        ((1, 3, 5), torch.float32, "x: expected pictures of shape"),
        ((1, 3, 5, 5), torch.float64, "in torch.float32; got"),
        ((1, 3, 2, 5), torch.float32, "x: expected pictures that the kernel"),
    ],
)
def test_pictures_that_do_not_fit_are_named(shape, dtype, message):
    module = EntriesConv(nn.Conv2d(3, 4, 3).requires_grad_(False))
    with pytest.raises(ValueError, match=message):
        module(torch.zeros(shape, dtype=dtype))


def test_results_do_not_depend_on_the_number_of_threads(generator):
    layer = nn.Conv2d(32, 64, 3, padding=1).requires_grad_(False)
    module, x, before = EntriesConv(layer), torch.randn(2, 32, 33, 31, generator=generator), torch.get_num_threads()
    one = module(x)
    try:
        torch.set_num_threads(5)
        assert torch.equal(module(x), one)
    finally:
        torch.set_num_threads(before)
