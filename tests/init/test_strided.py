"""Strided convolutions, as the explicit matrices they are."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from contracts.seeded import seeded
from orthosparse.init import delta_orthogonal_, sparse_delta_orthogonal_
from orthosparse.orthogonality import orthogonality_score
from orthosparse.strides import phases_of


def matrix_of(conv, size):
    """The convolution as a matrix, by pushing every unit signal through it."""
    sides = [size] * (conv.weight.dim() - 2)
    units = torch.eye(conv.in_channels * torch.Size(sides).numel(), dtype=torch.float64)
    return conv(units.view(-1, conv.in_channels, *sides)).flatten(1).T.detach()


def error(matrix):
    gram = matrix @ matrix.T if matrix.shape[0] <= matrix.shape[1] else matrix.T @ matrix
    return float((gram - torch.eye(len(gram), dtype=torch.float64)).abs().max())


# Sizes that the stride divides, padding <= kernel - stride, no position lost at the border.
EXACT = [
    nn.Conv2d(3, 48, 4, stride=4),  # a patch embedding without loss
    nn.Conv2d(3, 20, 4, stride=4),
    nn.Conv2d(16, 32, 3, stride=2, padding=1),  # the downsampling layer of a residual network
    nn.Conv2d(4, 20, 3, stride=2, padding=1),
    nn.Conv2d(3, 8, 7, stride=2, padding=3),  # its stem
    nn.Conv2d(4, 6, 2, stride=2, groups=2),
    nn.Conv2d(6, 6, 3, stride=2, padding=1, groups=6),
    nn.Conv2d(3, 5, (3, 2), stride=(1, 2), padding=(1, 0)),
    nn.Conv1d(3, 7, 4, stride=2, padding=1),
    nn.Conv3d(2, 9, 2, stride=2),
    nn.ConvTranspose2d(48, 3, 4, stride=4),
    nn.ConvTranspose1d(5, 3, 2, stride=2),
    nn.ConvTranspose2d(6, 4, 4, stride=2, padding=1),
    nn.ConvTranspose2d(6, 4, 2, stride=2, groups=2),
    nn.ConvTranspose2d(6, 4, 3, stride=2, padding=1, output_padding=1),
]


def geometry(conv):
    transposed = isinstance(conv, nn.modules.conv._ConvTransposeNd)
    sides = {"stride": conv.stride, "padding": conv.padding, "dilation": conv.dilation}
    return {"groups": conv.groups, "transposed": transposed, **sides}


@pytest.mark.parametrize("density", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("conv", EXACT, ids=str)
def test_windows_tile_the_picture_with_zero_padding_too(conv, density):
    conv = type(conv)(
        conv.in_channels, conv.out_channels, conv.kernel_size, conv.stride, conv.padding, groups=conv.groups,
        bias=False, **({"output_padding": conv.output_padding} if "Transpose" in str(conv) else {}),
    ).double()  # fmt: skip
    fill = {"floor": "minimal", "generator": seeded()}
    mask = sparse_delta_orthogonal_(conv.weight, density, **fill, **geometry(conv))
    matrix = matrix_of(conv, 4 if conv.weight.dim() == 5 or "Transpose" in str(conv) else 8)  # outputs are larger
    assert error(matrix) < 1e-12
    assert int(torch.linalg.matrix_rank(matrix)) == min(matrix.shape)
    first, second = conv.weight.shape[0] // conv.groups, conv.weight.shape[1]
    least = conv.groups * min(first, second * torch.Size(conv.stride).numel())
    assert int(mask.sum()) == max(least, round(density * mask.numel()))
    assert bool((conv.weight[~mask] == 0).all())


@pytest.mark.parametrize("conv", EXACT, ids=str)
def test_dense_matrices_tile_as_well(conv):
    weight = torch.empty(conv.weight.shape, dtype=torch.float64)
    delta_orthogonal_(weight, generator=seeded(), **geometry(conv))
    assert orthogonality_score(weight, groups=conv.groups, stride=conv.stride) < 1e-12


def test_one_tap_loses_what_the_window_keeps():
    conv = nn.Conv2d(16, 32, 3, stride=2, padding=1, bias=False).double()
    ranks = []
    for stride in (1, 2):
        sparse_delta_orthogonal_(conv.weight, 0.3, stride=stride, padding=1, generator=seeded())
        ranks.append(int(torch.linalg.matrix_rank(matrix_of(conv, 8))))
    assert ranks == [256, 512]


@settings(max_examples=60)
@given(
    st.sampled_from([1, 2]),
    st.integers(1, 5),
    st.integers(1, 4),
    st.lists(
        st.tuples(st.integers(1, 5), st.integers(1, 3), st.integers(0, 2), st.integers(1, 3)), min_size=1, max_size=2
    ),
    st.sampled_from(["center", "random", "mask"]),
    st.booleans(),
    st.floats(0, 1),
)
def test_every_window_is_orthogonal_on_the_pixels_that_it_can_read(
    groups, first, second, lines, tap, transposed, density
):
    sides, stride, padding, dilation = zip(*lines, strict=True)
    weight = torch.empty(groups * first, second, *sides, dtype=torch.float64)
    phases = phases_of(sides, stride, padding, dilation)
    count = max(groups * min(first, second * len(phases)), int(density * weight.numel()))
    goal = torch.zeros(weight.numel(), dtype=torch.bool)
    goal[torch.randperm(weight.numel(), generator=seeded(5))[:count]] = True
    mask = sparse_delta_orthogonal_(
        weight, count=count, groups=groups, transposed=transposed, tap=tap, stride=stride, padding=padding,
        dilation=dilation, align=goal.view(weight.shape) if tap == "mask" else None, generator=seeded(),
    )  # fmt: skip
    assert int(mask.sum()) == count
    assert bool((weight[~mask] == 0).all())
    # One column for each channel and each phase that has a tap, wherever in the phase it sits.
    columns = torch.stack([weight.flatten(2)[..., taps].sum(-1) for taps, _ in phases], -1).flatten(1)
    assert int(weight.ne(0).sum()) == int(columns.ne(0).sum())
    for matrix in columns.chunk(groups):
        assert error(matrix) < 1e-12


@given(
    st.sampled_from([torch.float16, torch.bfloat16, torch.float32]),
    st.sampled_from([1, 2]),
    st.integers(1, 3),
    st.sampled_from([{}, {"tap": "random"}, {"align": True}, {"align": True, "core": 0.3}]),
    st.integers(0, 99),
)
def test_one_seed_gives_one_kernel_which_every_dtype_rounds(dtype, groups, stride, options, seed):
    exact, again, rounded = (torch.empty(6, 4, 3, 3, dtype=each) for each in (torch.float64, torch.float64, dtype))
    align = torch.rand(exact.shape, generator=seeded(7)) if options.get("align") else None
    masks = [
        sparse_delta_orthogonal_(
            weight, 0.4, groups=groups, stride=stride, padding=1, generator=seeded(seed), **{**options, "align": align}
        )
        for weight in (exact, again, rounded)
    ]
    assert torch.equal(exact, again)
    assert torch.equal(exact.to(dtype), rounded)
    assert torch.equal(masks[0], masks[1])
    assert torch.equal(masks[0], masks[2])


def test_taps_of_a_phase_follow_the_mask_and_the_first_of_them_the_padding():
    assert [first for _, first in phases_of([7], stride=2, padding=3)] == [3, 4]
    assert [first for _, first in phases_of([3], stride=2, padding=1)] == [1, 2]
    assert [first for _, first in phases_of([2, 2], stride=2)] == [0, 1, 2, 3]
    goal = torch.zeros(6, 1, 3, dtype=torch.bool)
    goal[:, 0, 0] = True
    weight = torch.empty(6, 1, 3)
    sparse_delta_orthogonal_(weight, count=6, align=goal, stride=2, padding=1, generator=seeded())
    assert weight.ne(0).any(0).flatten().tolist() == [True, True, False]  # taps 0 and 2 are of one phase


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"stride": 0}, ValueError, "stride: expected an integer of at least 1; got 0"),
        ({"stride": (2, 2, 2)}, ValueError, "stride: expected an integer, or 2 of them"),
        ({"padding": -1}, ValueError, "padding: expected an integer of at least 0; got -1"),
        ({"dilation": 1.5}, TypeError, "dilation: expected an integer; got 1.5"),
    ],
)
def test_a_bad_geometry_is_named_and_the_weight_left_alone(options, error, message):
    weight = torch.full((4, 6, 3, 3), 7.0)
    for fill in (delta_orthogonal_, lambda w, **own: sparse_delta_orthogonal_(w, 0.5, **own)):
        with pytest.raises(error, match=message):
            fill(weight, **options)
    assert bool((weight == 7).all())
