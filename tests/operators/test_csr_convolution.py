"""Convolutions of entries as operators of torch: their rules, gradients of every order, and what they refuse."""

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from operators.convolutions import entries_of
from orthosparse.operators import csr_convolution, has_convolutions

pytestmark = pytest.mark.skipif(not has_convolutions(), reason="the kernel was not built")


def drawn(generator, dtype=torch.float64):
    """Return a convolution with stride, padding and groups, half of whose weights are zero, and images for it."""
    layer = nn.Conv2d(4, 6, (3, 2), stride=(2, 1), padding=(1, 0), groups=2, dtype=dtype)
    with torch.no_grad():
        layer.weight.normal_(generator=generator).mul_(torch.rand(layer.weight.shape, generator=generator) < 0.5)
    return layer, torch.randn(2, 4, 5, 4, generator=generator, dtype=dtype)


def test_gradients_of_first_and_second_order_are_right(generator):
    layer, x = drawn(generator)
    values, tables, geometry = entries_of(layer)
    leaves = [leaf.detach().requires_grad_() for leaf in (x, values, layer.bias)]

    def convolve(x, values, bias):
        return csr_convolution(x, values, bias, *tables, inputs=4, geometry=geometry)

    assert torch.autograd.gradcheck(convolve, leaves)
    assert torch.autograd.gradgradcheck(convolve, leaves)


def test_the_operators_keep_torchs_rules(generator):
    layer, x = drawn(generator, torch.float32)
    values, tables, geometry = entries_of(layer)
    index = *tables, 4, *map(list, geometry), list(x.shape[2:])
    grad = torch.randn(layer(x).shape, generator=generator)
    x, values, grad = (leaf.requires_grad_() for leaf in (x, values, grad))
    ops = torch.ops.orthosparse
    torch.library.opcheck(ops.csr_convolution_linear, (x, values, layer.bias, *index))
    torch.library.opcheck(ops.csr_convolution_input_grad, (grad, values, *index))
    torch.library.opcheck(ops.csr_convolution_weight_grad, (grad, x, *index))


def test_flops_are_those_of_the_active_entries(generator):
    layer, x = drawn(generator)
    values, tables, geometry = entries_of(layer)
    with FlopCounterMode(display=False) as counter:
        y = csr_convolution(x.requires_grad_(), values.requires_grad_(), None, *tables, inputs=4, geometry=geometry)
        y.sum().backward()
    assert counter.get_total_flops() == 3 * 2 * values.numel() * y[:, 0].numel()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_computes_in_float32(dtype, generator):
    layer, x = drawn(generator, torch.float32)
    values, tables, geometry = entries_of(layer)
    x = x.to(dtype)
    with torch.autocast("cpu", dtype):
        y = csr_convolution(x, values, None, *tables, inputs=4, geometry=geometry)
    _, stride, padding, dilation = geometry
    torch.testing.assert_close(y, functional.conv2d(x.float(), layer.weight, None, stride, padding, dilation, 2))


def test_operators_refuse_pictures_of_another_shape(generator):
    """A kernel would read past their end."""
    layer, x = drawn(generator)
    values, tables, geometry = entries_of(layer)
    index, grad = (*tables, 4, *geometry, x.shape[2:]), torch.ones_like(layer(x))
    ops = torch.ops.orthosparse
    for call in (
        lambda: ops.csr_convolution_linear(x[:, :3], values, None, *index),
        lambda: ops.csr_convolution_input_grad(grad[:, :, 1:], values, *index),
        lambda: ops.csr_convolution_weight_grad(grad[:, 1:], x, *index),
        lambda: ops.csr_convolution_weight_grad(grad, x[..., :2], *index),
    ):
        with pytest.raises(ValueError, match=r"expected shape \[batch, [46], "):
            call()
