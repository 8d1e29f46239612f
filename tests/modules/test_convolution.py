"""Convolutions of active entries: sizes, padding, and what they refuse."""

import pytest
import torch
from torch.nn import functional

from modules.conftest import filled
from orthosparse import SparseConv
from orthosparse.operators import has_convolutions

pytestmark = pytest.mark.skipif(not has_convolutions(), reason="the kernel was not built")


def test_padding_that_differs_at_both_ends_is_torchs(generator):
    layer = SparseConv(3, 4, (2, 4), 30, padding="same", dtype=torch.float64)
    with torch.no_grad():
        layer.values.normal_(generator=generator)
    x = torch.randn(2, 3, 5, 6, generator=generator, dtype=torch.float64)
    expected = functional.conv2d(functional.pad(x, (1, 2, 0, 1)), layer.weight, layer.bias)  # torch adds more behind
    torch.testing.assert_close(layer(x), expected)


@pytest.mark.parametrize("kind", ["taps", "groups"])
def test_one_picture_may_come_without_a_batch(kind, generator):
    layer = filled(kind, generator)
    x = torch.randn(6, 7, 5, generator=generator)
    assert torch.equal(layer(x), layer(x[None])[0])


@pytest.mark.parametrize(
    ("sizes", "options", "message"),
    [
        ((3, 4, (3, 3), 200), {}, "entries: expected at most 108"),
        ((3, 4, (3, 3), -1), {}, "entries: expected an integer of at least 0"),
        ((3, 4, (), 1), {}, "kernel_size: expected one to three numbers"),
        ((3, 4, (3, 3), 1), {"stride": (1, 2, 3)}, "stride: expected an integer, or 2"),
        ((3, 4, (3, 3), 1), {"groups": 2}, "in_channels must be divisible by groups"),
        ((3, 4, (3, 3), 1), {"padding": "some"}, "Invalid padding string"),
        ((3, 4, (3, 3), 1), {"padding": "same", "stride": 2}, "padding='same' is not supported for strided"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(sizes, options, message):
    with pytest.raises(ValueError, match=message):
        SparseConv(*sizes, **options)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_types_without_a_kernel_are_refused(dtype):
    layer = SparseConv(3, 4, (3, 3), 5, dtype=dtype)
    with pytest.raises(RuntimeError, match="SparseConv: expected float32 or float64 on the CPU"):
        layer(torch.ones(2, 3, 5, 5, dtype=dtype))


def test_the_weight_and_its_places_are_those_of_a_convolution():
    layer = SparseConv(4, 6, (3, 1), 3, groups=2, stride=2, padding=1)
    assert layer.weight_shape == (6, 2, 3, 1)
    layer.move(torch.tensor([0, 8, 35]))
    assert layer.weight_mask.nonzero().tolist() == [[0, 0, 0, 0], [1, 0, 2, 0], [5, 1, 2, 0]]
    assert repr(layer) == (
        "SparseConv(4, 6, kernel_size=(3, 1), stride=(2, 2), padding=(1, 1), groups=2, bias=True, density=0.08333)"
    )
    layer = SparseConv(4, 6, (3,), 3, padding=1, padding_mode="circular", bias=False)
    sizes = "4, 6, kernel_size=(3,), stride=(1,), padding=(1,), padding_mode=circular"
    assert repr(layer) == f"SparseConv({sizes}, bias=False, density=0.04167)"
