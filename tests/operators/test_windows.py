"""Convolutions of entries and their gradients: those of torch, for every geometry."""

import pytest
import torch
from hypothesis import given
from torch import nn

from operators.convolutions import convolutions, entries_of
from orthosparse.deploying.modules import EntriesConv
from orthosparse.hardware import on_threads
from orthosparse.operators import has_convolutions, windows

pytestmark = pytest.mark.skipif(not has_convolutions(), reason="the kernel was not built")


@given(convolutions())
def test_the_convolution_is_torchs(drawn):
    layer, x = drawn
    y = EntriesConv(layer)(x)
    torch.testing.assert_close(y, layer(x))
    assert y.is_contiguous()


@given(convolutions())
def test_the_gradients_are_torchs(drawn):
    layer, x = drawn
    values, (row_starts, columns, *transposed), geometry = entries_of(layer)
    y = layer.requires_grad_()(x.requires_grad_())
    grad = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view(y.shape)
    x_grad, weight_grad = torch.autograd.grad(y, [x, layer.weight], grad)
    found = windows.input_grad(grad, values, transposed, geometry, x.shape[2:])
    torch.testing.assert_close(found, x_grad)
    assert found.is_contiguous()
    found = windows.weight_grad(grad, x.detach(), row_starts, columns, geometry)
    torch.testing.assert_close(found, weight_grad[layer.weight != 0][None])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("groups", [1, 8])
def test_pictures_may_lie_channels_last(dtype, groups, generator):
    layer = nn.Conv2d(8, 8, 3, padding=1, stride=2, groups=groups, dtype=dtype).requires_grad_(False)
    x = torch.randn(2, 8, 9, 7, generator=generator, dtype=dtype).contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(EntriesConv(layer)(x), layer(x).contiguous())


def test_an_empty_weight_leaves_the_bias():
    layer = nn.Conv2d(3, 4, 3, padding=1).requires_grad_(False)
    layer.weight.zero_()
    torch.testing.assert_close(EntriesConv(layer)(torch.ones(2, 3, 5, 5)), layer(torch.ones(2, 3, 5, 5)))


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((1, 4, 5, 5), r"x: expected shape \[batch, 3, side, side\]"),
        ((1, 3, 5), "x: expected shape"),
        ((1, 3, 2, 5), "x: expected an input that the kernel"),
    ],
)
def test_pictures_that_do_not_fit_are_named(shape, message):
    module = EntriesConv(nn.Conv2d(3, 4, 3).requires_grad_(False))
    with pytest.raises(ValueError, match=message):
        module(torch.zeros(shape))
    with pytest.raises(TypeError, match=r"x: expected the type of the weight, torch\.float32; got"):
        module(torch.zeros(1, 3, 5, 5, dtype=torch.float64))


def test_no_pictures_give_no_results_and_no_gradients():
    layer = nn.Conv2d(3, 4, 3, padding=1, stride=2)
    values, (row_starts, columns, *transposed), geometry = entries_of(layer)
    x, grad = torch.empty(0, 3, 9, 8), torch.empty(0, 4, 5, 4)
    assert windows.convolution(x, values, None, row_starts, columns, geometry).shape == grad.shape
    assert windows.input_grad(grad, values, transposed, geometry, (9, 8)).shape == x.shape
    assert not windows.weight_grad(grad, x, row_starts, columns, geometry).any()


def test_results_do_not_depend_on_the_number_of_threads(generator):
    values, (row_starts, columns, *transposed), geometry = entries_of(nn.Conv2d(32, 64, 3, padding=1))
    x, grad = (torch.randn(2, channels, 33, 31, generator=generator) for channels in (32, 64))

    def results():
        return [
            windows.convolution(x, values, None, row_starts, columns, geometry),
            windows.input_grad(grad, values, transposed, geometry, (33, 31)),
            windows.weight_grad(grad, x, row_starts, columns, geometry),
        ]

    one = results()
    with on_threads(5):
        assert all(torch.equal(many, alone) for many, alone in zip(results(), one, strict=True))
