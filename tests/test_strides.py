import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from orthosparse.strides import dilated, phases_of, phases_read, polyphase, structural_rank


@given(st.integers(1, 7), st.integers(1, 4), st.integers(0, 3), st.integers(1, 3))
def test_phases_part_the_taps_by_the_pixels_that_they_meet(side, stride, padding, dilation):
    phases = phases_of([side], stride, padding, dilation)
    assert sorted(tap for taps, _ in phases for tap in taps) == list(range(side))
    if stride == 1:
        assert phases[0][1] == (side - 1) // 2
        return
    offsets = [[(dilation * tap - padding) for tap in taps] for taps, _ in phases]
    assert all(len({offset % stride for offset in each}) == 1 for each in offsets)
    assert len({each[0] % stride for each in offsets}) == len(phases)
    for (_, first), each in zip(phases, offsets, strict=True):
        nearest = abs((dilation * first - padding) // stride)
        assert nearest == min(abs(offset // stride) for offset in each)


@pytest.mark.parametrize("stride", [(2, 2), (3, 1), (2, 3)])
def test_a_strided_convolution_is_a_plain_one_of_its_phases(stride):
    g = torch.Generator().manual_seed(0)
    kernel = torch.randn(4, 3, 3, 5, generator=g, dtype=torch.float64)
    x = torch.randn(1, 3, 12, 12, generator=g, dtype=torch.float64)
    expected = functional.conv2d(x, kernel, stride=stride)
    plain = polyphase(kernel.unsqueeze(0), stride)[0]
    split = x.unflatten(2, (-1, stride[0])).unflatten(4, (-1, stride[1]))  # n, c, h, a, w, b
    signals = split.permute(0, 1, 3, 5, 2, 4).flatten(1, 3)
    found = functional.conv2d(signals, plain)
    assert torch.allclose(found[..., : expected.shape[2], : expected.shape[3]], expected)


def test_ranks_count_what_zeros_leave():
    kernel = torch.zeros(1, 6, 2, 2, 2)
    kernel[0, :, :, 0, 0] = 1
    assert structural_rank(kernel, [2, 2]) == (2, 6)
    assert phases_read(kernel, [2, 2]) == 1
    kernel[0, :, :, 1, 0] = 1
    assert structural_rank(kernel, [2, 2]) == (4, 6)
    assert phases_read(kernel, [2, 2]) == 2


def test_dilation_spreads_the_taps():
    kernel = torch.arange(4.0).view(1, 1, 2, 2)
    x = torch.randn(1, 1, 9, 9, generator=torch.Generator().manual_seed(0))
    expected = functional.conv2d(x, kernel, dilation=(2, 3))
    assert torch.allclose(functional.conv2d(x, dilated(kernel, (2, 3))), expected)
