import math
import random
import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from contracts.defaults import other_defaults
from contracts.rounding import rounding_floor
from contracts.seeded import seeded
from orthosparse import givens
from orthosparse.hardware import on_threads
from orthosparse.init import (
    conv_orthogonal_,
    delta_orthogonal_,
    orthogonal_,
    sparse_delta_orthogonal_,
    sparse_orthogonal_,
)
from orthosparse.init.dense import projections
from orthosparse.orthogonality import dead_inputs, dead_outputs, orthogonality_score

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
CONVOLUTIONS = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}
ADJOINTS = {1: functional.conv_transpose1d, 2: functional.conv_transpose2d, 3: functional.conv_transpose3d}
# Every function, as fill(weight, **options), with the shape of a weight it takes.
MATRICES = {
    "orthogonal_": orthogonal_,
    "sparse_orthogonal_": lambda weight, **own: sparse_orthogonal_(weight, 0.3, **own),
}
KERNELS = {
    "delta_orthogonal_": delta_orthogonal_,
    "conv_orthogonal_": conv_orthogonal_,
    "sparse_delta_orthogonal_": lambda weight, **own: sparse_delta_orthogonal_(weight, 0.3, **own),
}
FILLERS = [(fill, (5, 7)) for fill in MATRICES.values()] + [(fill, (6, 4, 3, 3)) for fill in KERNELS.values()]
FILLER_NAMES = [*MATRICES, *KERNELS]
every_filler = pytest.mark.parametrize(("fill", "shape"), FILLERS, ids=FILLER_NAMES)


def filled(fill, shape, dtype=torch.float64, seed=0, **options):
    weight = torch.full(shape, math.nan, dtype=dtype)
    returned = fill(weight, generator=seeded(seed), **options)
    return weight, returned


def convolved(signal, weight, groups):
    """The convolution with circular padding, by torch."""
    padding = [pad for side in reversed(weight.shape[2:]) for pad in ((side - 1) // 2, side // 2)]
    return CONVOLUTIONS[weight.dim() - 2](functional.pad(signal, padding, mode="circular"), weight, groups=groups)


def transposed_convolved(signal, weight, groups):
    """The transposed convolution by torch, which has no circular padding there: what sticks out is wrapped around."""
    full = ADJOINTS[weight.dim() - 2](signal, weight, groups=groups)
    for axis, size in enumerate(signal.shape[2:], start=2):
        head, tail = full.split([size, full.shape[axis] - size], dim=axis)
        head.narrow(axis, 0, tail.shape[axis]).add_(tail)
        full = head
    return full


def norm_change(weight, groups, transposed):
    """How much the layer changes a random signal's norm; its adjoint's where it has fewer outputs than inputs."""
    inputs, outputs = weight.shape[1] * groups, weight.shape[0]
    if transposed:
        inputs, outputs = outputs, inputs
    # A layer's adjoint is the transposed layer with the weight as it is stored, and the other way round.
    function = transposed_convolved if transposed == (outputs >= inputs) else convolved
    signal = torch.randn(
        2, min(inputs, outputs), *[side + 2 for side in weight.shape[2:]], generator=seeded(9), dtype=weight.dtype
    )
    return abs(float(function(signal, weight, groups).norm() / signal.norm()) - 1)


def test_the_norm_check_sees_a_kernel_that_is_not_orthogonal():
    weight = torch.full((2, 2, 3), 1 / math.sqrt(12), dtype=torch.float64)  # rows of norm 1 / sqrt(2), all alike
    assert norm_change(weight, 1, False) > 0.1
    assert norm_change(weight, 1, True) > 0.1


@st.composite
def matrix_cases(draw, largest=300):
    shape = draw(st.tuples(st.integers(1, largest), st.integers(1, largest)))
    return shape, draw(st.integers(min(shape), math.prod(shape)))


@st.composite
def kernel_cases(draw):
    groups = draw(st.integers(1, 3))
    first, second = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    sides = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    shape = (groups * first, second, *sides)
    least = groups * min(first, second)
    return shape, groups, draw(st.integers(least, math.prod(shape)))


# --- sparse matrices


@settings(max_examples=60)
@given(case=matrix_cases(), dtype=st.sampled_from(DTYPES), seed=st.integers(0, 99))
def test_a_sparse_matrix_has_exactly_the_count_and_is_orthogonal_to_rounding(case, dtype, seed):
    shape, count = case
    weight, mask = filled(sparse_orthogonal_, shape, dtype, seed, count=count)
    assert (mask.shape, mask.dtype) == (weight.shape, torch.bool)
    assert int(mask.sum()) == count
    assert not weight[~mask].any()
    assert orthogonality_score(weight) <= (1e-12 if dtype == torch.float64 else rounding_floor(weight))


@given(case=matrix_cases(12), density=st.floats(0, 1))
def test_a_density_is_rounded_once_and_met(case, density):
    shape, _ = case
    size, least = math.prod(shape), min(shape)
    expected = max(math.floor(density * size + 0.5), least)
    _, mask = filled(sparse_orthogonal_, shape, density=density, floor="minimal")
    assert int(mask.sum()) == expected


def test_a_sparse_matrix_has_the_entries_of_the_sampler():
    weight, mask = filled(sparse_orthogonal_, (9, 13), count=40, start="permuted", angle=0.3)
    values, active = givens.sample((9, 13), 40, start="permuted", angle=0.3, generator=seeded())
    assert torch.equal(weight, values)
    assert torch.equal(mask, active)


@pytest.mark.parametrize("stop", ["closest", "first"])
def test_the_papers_stopping_rules_are_there_by_name(stop):
    weight, mask = filled(sparse_orthogonal_, (20, 20), count=131, stop=stop)
    _, active = givens.sample((20, 20), 131, stop=stop, generator=seeded())
    assert torch.equal(mask, active)
    assert orthogonality_score(weight) < 1e-12


# --- floors


def named_density(error):
    return float(re.search(r"at least ([0-9.e-]+)", str(error.value)).group(1))


@pytest.mark.parametrize("shape", [(64, 64), (30, 7), (3, 997)])
def test_too_low_a_density_is_refused_with_the_smallest_that_works(shape):
    weight = torch.full(shape, 7.0)
    with pytest.raises(ValueError, match=r"density: expected at least .*; got 0.0001 \(\d+\)") as error:
        sparse_orthogonal_(weight, 0.0001)
    assert bool((weight == 7.0).all())
    smallest = named_density(error)
    assert int(sparse_orthogonal_(weight, smallest, generator=seeded()).sum()) == min(shape)
    with pytest.raises(ValueError, match="expected at least"):
        sparse_orthogonal_(weight, count=min(shape) - 1)


def test_a_kernels_floor_counts_every_group():
    weight = torch.zeros(12, 2, 3, 3)
    with pytest.raises(ValueError, match="count: expected at least 12 for an orthogonal weight; got 11;"):
        sparse_delta_orthogonal_(weight, count=11, groups=6)
    with pytest.raises(
        ValueError, match=r"density: expected at least .* \(12 of 216 entries\) .*; got 0.05 \(11\)"
    ) as error:
        sparse_delta_orthogonal_(weight, 0.05, groups=6)
    assert int(sparse_delta_orthogonal_(weight, named_density(error), groups=6).sum()) == 12


@pytest.mark.parametrize("count", [0, 1, 4])
@pytest.mark.parametrize("shape", [(5, 8), (8, 5), (5, 5)])
def test_a_partial_matrix_is_a_partial_isometry_of_as_many_dimensions_as_entries(shape, count):
    weight, mask = filled(sparse_orthogonal_, shape, count=count, floor="partial", gain=2.0)
    assert int(mask.sum()) == count
    values = torch.linalg.svdvals(weight)
    torch.testing.assert_close(values, torch.tensor([2.0] * count + [0.0] * (5 - count), dtype=torch.float64))


def test_a_partial_matrix_keeps_any_of_the_rows():
    kept = sum(filled(sparse_orthogonal_, (3, 4), seed=seed, count=1, floor="partial")[1] for seed in range(40))
    assert kept.any(1).all()


@pytest.mark.parametrize("transposed", [False, True])
def test_a_partial_kernel_is_a_partial_isometry_of_as_many_dimensions_as_entries(transposed):
    options = {"groups": 3, "tap": "random", "transposed": transposed, "floor": "partial"}
    weight, mask = filled(sparse_delta_orthogonal_, (6, 4, 3), count=5, **options)
    assert int(mask.sum()) == 5
    assert torch.equal(mask, weight != 0)
    matrix = torch.block_diag(*weight.sum(-1).split(2))
    torch.testing.assert_close(torch.linalg.svdvals(matrix), torch.tensor([1.0] * 5 + [0.0], dtype=torch.float64))


def test_minimal_raises_the_count_to_the_floor():
    weight, mask = filled(sparse_orthogonal_, (6, 9), density=0.0, floor="minimal")
    assert int(mask.sum()) == 6
    assert orthogonality_score(weight) == 0.0
    weight, mask = filled(sparse_delta_orthogonal_, (6, 9, 3), density=0.0, floor="minimal")
    assert int(mask.sum()) == 6
    assert orthogonality_score(weight) == 0.0


@pytest.mark.parametrize("floor", ["error", "partial", "minimal"])
def test_a_floor_changes_nothing_where_the_count_suffices(floor):
    weight, _ = filled(sparse_orthogonal_, (6, 9), count=20, floor=floor)
    assert torch.equal(weight, filled(sparse_orthogonal_, (6, 9), count=20)[0])


# --- sparse kernels


@settings(max_examples=150)
@given(
    case=kernel_cases(),
    tap=st.sampled_from(["center", "random"]),
    transposed=st.booleans(),
    center_density=st.none() | st.floats(0, 1),
    seed=st.integers(0, 99),
)
def test_a_sparse_kernel_has_exactly_the_count_and_keeps_norms(case, tap, transposed, center_density, seed):
    shape, groups, count = case
    options = {"groups": groups, "tap": tap, "transposed": transposed, "center_density": center_density}
    weight, mask = filled(sparse_delta_orthogonal_, shape, seed=seed, count=count, **options)
    assert (mask.shape, mask.dtype) == (weight.shape, torch.bool)
    assert int(mask.sum()) == count
    assert not weight[~mask].any()
    assert orthogonality_score(weight, groups=groups) <= 1e-12
    assert norm_change(weight, groups, transposed) <= 1e-12


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("tap", ["center", "random"])
def test_a_sparse_kernel_is_orthogonal_to_the_rounding_of_its_dtype(dtype, tap):
    weight, _ = filled(sparse_delta_orthogonal_, (48, 32, 3, 3), dtype, density=0.1, tap=tap)
    assert orthogonality_score(weight) <= rounding_floor(weight)


@pytest.mark.parametrize("sides", [(1,), (2,), (3,), (4,), (3, 3), (2, 3), (1, 7), (4, 4), (3, 2, 3)])
def test_the_centre_is_half_of_each_side_less_one(sides):
    weight, _ = filled(sparse_delta_orthogonal_, (6, 5, *sides), density=0.5)
    index = tuple((side - 1) // 2 for side in sides)
    assert orthogonality_score(weight[(slice(None), slice(None), *index)]) < 1e-12
    weight[(slice(None), slice(None), *index)] = 0
    assert not weight.any()


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("fill", [sparse_delta_orthogonal_, delta_orthogonal_])
def test_a_random_tap_is_one_tap_per_input_channel_and_not_the_same_for_all(fill, transposed):
    density = {"density": 0.4} if fill is sparse_delta_orthogonal_ else {}
    weight, _ = filled(fill, (8, 8, 3, 3), groups=2, tap="random", transposed=transposed, **density)
    by_input = weight.unflatten(0, (2, 4)).transpose(1, 2) if not transposed else weight.unflatten(0, (2, 4))
    used = by_input.flatten(0, 1).flatten(2).ne(0).any(1)  # [input channel, tap]
    assert used.sum(1).tolist() == [1] * len(used)
    assert len(set(used.int().argmax(1).tolist())) > 1


@pytest.mark.parametrize(
    ("shape", "density", "expected"),
    [
        ((64, 64, 3, 3), 0.1, 1295),  # sqrt(3686 / 36864) of 4096
        ((64, 64, 3, 3), 0.005, 184),  # 9 d is less than sqrt(d): the matrix gets all 184 entries
        ((64, 64, 1, 1), 0.1, 410),  # one tap: the matrix is the weight
        ((64, 64, 3), 0.04, 492),  # 3 d = .12 < .2: all 492 entries of 12288
        ((64, 64, 3, 3), 0.0018, 66),  # hardly above the floor
        ((16, 16, 3, 3), 1.0, 256),
    ],
)
def test_the_matrix_has_by_default_the_root_of_the_density_or_all_entries_where_that_is_less(shape, density, expected):
    weight, mask = filled(sparse_delta_orthogonal_, shape, density=density)
    assert int(mask.sum()) == round(density * weight.numel())
    center = tuple((side - 1) // 2 for side in shape[2:])
    assert int(mask[(slice(None), slice(None), *center)].sum()) >= expected
    # Values down to 1e-14 occur but none is an exact zero, bar the few entries that meet the count.
    assert expected - 2 <= int(weight.count_nonzero()) <= expected


@pytest.mark.parametrize(
    ("center_density", "expected"),
    [(0.1, 410), (0.0, 64), (0.25, 1024), (1.0, 3686)],
)
def test_a_centre_density_is_taken_as_given_within_what_floor_and_count_allow(center_density, expected):
    weight, mask = filled(sparse_delta_orthogonal_, (64, 64, 3, 3), density=0.1, center_density=center_density)
    assert expected - 2 <= int(weight.count_nonzero()) <= expected
    assert int(mask.sum()) == 3686
    assert orthogonality_score(weight) < 1e-12


def test_a_kernels_mask_is_not_its_support():
    weight, mask = filled(sparse_delta_orthogonal_, (16, 16, 3, 3), density=0.2)
    assert int((mask & (weight == 0)).sum()) > 200
    assert bool((mask & (weight == 0))[:, :, 1, 1].any()), "zeros at the centre are unfrozen too"
    assert not bool((~mask & (weight != 0)).any())


def test_unfreezing_is_uniform_over_all_zero_entries():
    # The matrix is the identity (center_density 0, clipped to the floor), so 24 of 27 entries are zero, and 6 of these
    # are active. Each is so in a quarter of the draws; the statistic is chi-square with 23 degrees of freedom (the 6
    # are drawn without replacement, hence the factor), which lies in (5, 57) but for one seed in 5000.
    draws = 1000
    masks = sum(
        filled(sparse_delta_orthogonal_, (3, 3, 3), seed=seed, count=9, center_density=0.0)[1].int()
        for seed in range(draws)
    )
    identity = torch.zeros(3, 3, 3, dtype=torch.bool)
    identity[:, :, 1] = torch.eye(3, dtype=torch.bool)
    assert masks[identity].tolist() == [draws] * 3
    counts = masks[~identity].double()
    statistic = float((counts - draws / 4).square().sum() / (draws / 4 * 3 / 4) * 23 / 24)
    assert 5 < statistic < 57


def test_the_entries_that_do_not_divide_go_to_any_group():
    uneven = torch.zeros(3)
    for seed in range(30):
        _, mask = filled(sparse_delta_orthogonal_, (9, 3, 1), seed=seed, count=16, groups=3)
        counts = mask.reshape(3, -1).sum(1)
        assert sorted(counts.tolist()) == [5, 5, 6]
        uneven += counts == 6
    assert uneven.min() > 0


@pytest.mark.parametrize("shape", [(32, 1, 3), (32, 1, 3, 3), (32, 1, 5, 5), (32, 1, 2, 3, 3)])
@pytest.mark.parametrize("tap", ["center", "random"])
def test_depthwise_each_channel_has_one_tap_of_plus_or_minus_one(shape, tap):
    weight, mask = filled(sparse_delta_orthogonal_, shape, density=0.4, groups=32, tap=tap, gain=1.5)
    assert int(mask.sum()) == math.floor(0.4 * weight.numel() + 0.5)
    kernels = weight.flatten(1)
    assert kernels.count_nonzero(1).tolist() == [1] * 32
    assert sorted(set(kernels.sum(1).tolist())) == [-1.5, 1.5]


def test_the_released_depthwise_handling_is_one_group():
    # One 96 x 1 matrix: a unit column, spread over the channels; most channels are silent and norms shrink.
    weight, _ = filled(sparse_delta_orthogonal_, (96, 1, 3, 3), density=0.1, groups=1)
    assert int(weight.count_nonzero()) == 30
    assert float(weight.norm()) == pytest.approx(1.0)


@pytest.mark.parametrize("transposed", [False, True])
def test_no_group_is_dead(transposed):
    options = {"groups": 4, "transposed": transposed}
    weight, mask = filled(sparse_delta_orthogonal_, (16, 4, 3, 3), count=16, **options)
    for tensor in (weight, mask):
        assert not dead_outputs(tensor, **options).any()
        assert not dead_inputs(tensor, **options).any()


@pytest.mark.parametrize("stop", ["closest", "first"])
def test_the_papers_stopping_rules_hold_for_kernels_too(stop):
    for seed in range(5):
        weight, mask = filled(sparse_delta_orthogonal_, (20, 20, 3, 3), seed=seed, density=0.1, stop=stop)
        assert int(mask.sum()) == 360
        assert orthogonality_score(weight) < 1e-12
        weight, mask = filled(sparse_delta_orthogonal_, (20, 20, 1, 1), seed=seed, density=0.3, stop=stop)
        assert not (weight[~mask]).any()
        assert orthogonality_score(weight) < 1e-12


# --- dense


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1), (1, 6), (7, 7), (5, 9), (9, 5)])
def test_a_dense_matrix_is_orthogonal_in_every_dtype(shape, dtype):
    weight, returned = filled(orthogonal_, shape, dtype)
    assert returned is weight
    assert orthogonality_score(weight) <= rounding_floor(weight)
    assert weight.count_nonzero() == weight.numel()


def test_dense_matrices_have_no_preferred_sign():
    # An entry of a Haar 2 x 2 matrix has mean 0 and variance 1/2: the mean of 400 has deviation .035. QR whose R is
    # left with any diagonal gives a mean of 2 / pi in size.
    mean = sum(filled(orthogonal_, (2, 2), seed=seed)[0] for seed in range(400)) / 400
    assert mean.abs().max() < 4 * 0.0354


@pytest.mark.parametrize("shape", [(3, 3), (6, 2)])
def test_dense_matrices_are_uniform_among_the_orthogonal_ones(shape):
    # Each entry's square has mean 1 / rows; the fourth power 3 / (rows (rows + 2)) (a coordinate on the sphere).
    squares = torch.stack([filled(orthogonal_, shape, seed=seed)[0] ** 2 for seed in range(400)])
    rows = shape[0]
    deviation = math.sqrt((3 / (rows * (rows + 2)) - 1 / rows**2) / 400)
    assert (squares.mean(0) - 1 / rows).abs().max() < 4 * deviation


@settings(max_examples=60)
@given(case=kernel_cases(), transposed=st.booleans(), seed=st.integers(0, 99))
@pytest.mark.parametrize("fill", [delta_orthogonal_, conv_orthogonal_])
def test_a_dense_kernel_keeps_norms(fill, case, transposed, seed):
    shape, groups, _ = case
    weight, returned = filled(fill, shape, seed=seed, groups=groups, transposed=transposed)
    assert returned is weight
    assert orthogonality_score(weight, groups=groups) <= 1e-12
    assert norm_change(weight, groups, transposed) <= 1e-12


@pytest.mark.parametrize("sides", [(3,), (4,), (3, 3), (2, 2), (1, 4), (2, 3), (3, 3, 3), (2, 1, 3)])
@pytest.mark.parametrize("channels", [(6, 6), (8, 3), (3, 8)])
def test_the_matrix_of_every_frequency_of_a_dense_kernel_is_orthogonal(channels, sides):
    weight, _ = filled(conv_orthogonal_, (*channels, *sides))
    spectrum = torch.fft.fftn(weight, s=[side + 3 for side in sides], dim=tuple(range(2, weight.dim())))
    matrices = spectrum.flatten(2).movedim(2, 0)
    small = matrices if channels[0] <= channels[1] else matrices.mH
    distance = small @ small.mH - torch.eye(min(channels))
    assert float(distance.abs().max()) < 1e-13


@pytest.mark.parametrize("sides", [(5,), (3, 3), (2, 4), (3, 2, 3)])
def test_a_dense_kernel_uses_every_tap(sides):
    # 32 channels: a projection keeps none or all of them, and so leaves taps out, in one of 2^31 draws.
    weight, _ = filled(conv_orthogonal_, (32, 24, *sides))
    taps = weight.flatten(2).norm(dim=(0, 1))
    assert taps.min() > 0.1 * taps.max()


def test_projections_project_and_keep_each_direction_by_a_fair_coin():
    ranks = []
    for seed in range(100):
        drawn = projections(3, 4, generator=seeded(seed))
        torch.testing.assert_close(drawn @ drawn, drawn)
        torch.testing.assert_close(drawn.mT, drawn)
        ranks += drawn.diagonal(dim1=1, dim2=2).sum(1).round().int().tolist()
    # Binomial(4, 1/2): mean 2, deviation 1, so .058 for the mean of 300.
    assert abs(sum(ranks) / len(ranks) - 2) < 4 * 0.058
    assert set(ranks) == {0, 1, 2, 3, 4}


def test_projections_are_fresh_at_every_step():
    # One projection used twice would leave the middle tap empty: P (I - P) + (I - P) P = 0.
    weight, _ = filled(conv_orthogonal_, (8, 8, 3))
    assert weight[:, :, 1].norm() > 0.5


@pytest.mark.parametrize("tap", ["center", "random"])
def test_a_dense_delta_kernel_has_no_zero_at_its_taps_and_only_zeros_elsewhere(tap):
    weight, _ = filled(delta_orthogonal_, (6, 3, 3, 3), groups=2, tap=tap)
    assert weight.flatten(2).count_nonzero(2).eq(1).all()


def test_bits_do_not_depend_on_the_number_of_threads():
    weights = []
    for number in (1, 2):
        with on_threads(number):
            weights.append([filled(fill, shape)[0] for fill, shape in FILLERS] + [filled(orthogonal_, (128, 128))[0]])
            weights[-1].append(filled(conv_orthogonal_, (64, 64, 3, 3))[0])
            weights[-1].append(filled(sparse_orthogonal_, (128, 128), density=0.2, threads=number)[0])
            assert torch.get_num_threads() == number
    assert all(torch.equal(one, two) for one, two in zip(*weights, strict=True))


# --- all of them


@every_filler
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_gets_the_same_numbers_rounded_once(fill, shape, dtype):
    for gain in (1.0, 1.7):
        exact, _ = filled(fill, shape, gain=gain)
        weight, _ = filled(fill, shape, dtype, gain=gain)
        assert torch.equal(weight, exact.to(dtype))


@every_filler
def test_a_gain_multiplies(fill, shape):
    unit, _ = filled(fill, shape)
    assert torch.equal(filled(fill, shape, gain=-2.5)[0], unit * -2.5)
    assert not filled(fill, shape, gain=0)[0].any()


@every_filler
def test_the_generator_is_the_only_randomness(fill, shape):
    before = (torch.random.get_rng_state(), np.random.get_state()[1].copy(), random.getstate())  # noqa: NPY002
    first, again, other = (filled(fill, shape, seed=seed)[0] for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    generator = seeded(1)
    weights = [torch.empty(shape, dtype=torch.float64) for _ in range(2)]
    for weight in weights:
        fill(weight, generator=generator)
    assert torch.equal(weights[0], first)
    assert not torch.equal(weights[1], first)
    fill(weights[0])
    fill(weights[1])
    assert not torch.equal(*weights)
    after = (torch.random.get_rng_state(), np.random.get_state()[1].copy(), random.getstate())  # noqa: NPY002
    assert torch.equal(before[0], after[0])
    assert (before[1] == after[1]).all()
    assert before[2] == after[2]


@every_filler
def test_strides_do_not_matter(fill, shape):
    expected, _ = filled(fill, shape)
    room = torch.full([2 * side + 1 for side in reversed(shape)], 7.0, dtype=torch.float64)
    view = room[tuple(slice(1, None, 2) for _ in shape)].permute(*reversed(range(len(shape))))
    fill(view, generator=seeded())
    assert torch.equal(view, expected)
    assert int((room == 7.0).sum()) == room.numel() - view.numel()


@every_filler
def test_a_default_device_and_dtype_do_not_matter(fill, shape):
    expected, returned = filled(fill, shape)
    weight = torch.empty(shape, dtype=torch.float64)
    with other_defaults():
        mask = fill(weight, generator=seeded())
    assert torch.equal(weight, expected)
    assert torch.equal(mask, returned)


@every_filler
def test_a_parameter_is_filled_and_stays_a_leaf(fill, shape):
    parameter = torch.nn.Parameter(torch.full(shape, math.nan, dtype=torch.float64))
    returned = fill(parameter, generator=seeded())
    assert parameter.is_leaf
    assert parameter.requires_grad
    assert not (returned.requires_grad and returned is not parameter)
    assert torch.equal(parameter, filled(fill, shape)[0])
    fill(parameter[: shape[0] // 2])  # a view of it, as a fused layer's block is


BAD_TENSORS = [  # made for the shape that the function takes
    (lambda shape: [[1.0, 0.0], [0.0, 1.0]], TypeError, r"dense real tensor; got \[\[1.0.* \(list\)"),
    (lambda shape: torch.ones(shape, dtype=torch.int64), TypeError, "float16, bfloat16, float32, float64; got .*int64"),
    (lambda shape: torch.ones(shape, dtype=torch.bool), TypeError, "torch.bool"),
    (lambda shape: torch.ones(shape, dtype=torch.complex64), TypeError, "real tensor; got .*complex64"),
    (lambda shape: torch.ones(shape).to(torch.float8_e4m3fn), TypeError, "float8"),
    (lambda shape: torch.ones(shape).to_sparse(), TypeError, "dense.*sparse_coo"),
    (lambda shape: torch.ones(4), ValueError, r"two or more sides.*\(4,\)"),
    (lambda shape: torch.ones(()), ValueError, r"two or more sides.*\(\)"),
    (lambda shape: torch.ones(0, *shape[1:]), ValueError, r"none of them 0; got shape \(0, "),
    (lambda shape: torch.ones(*shape[:-1], 0), ValueError, r"none of them 0; got shape .* 0\)"),
    (lambda shape: torch.ones([1] * len(shape)).expand(shape), ValueError, "not an expanded tensor"),
]


@every_filler
@pytest.mark.parametrize(("make", "error", "message"), BAD_TENSORS)
def test_a_tensor_that_cannot_be_filled_is_named_and_left_alone(fill, shape, make, error, message):
    weight = make(shape)
    with pytest.raises(error, match="weight: expected .*" + message):
        fill(weight)
    dense = torch.as_tensor(weight).to_dense()
    assert bool(dense.to(torch.complex128).eq(1).all()) or isinstance(weight, list)


@every_filler
def test_a_tensor_without_storage_is_refused(fill, shape):
    with pytest.raises(ValueError, match=r"weight: expected a tensor with storage; got .*meta"):
        fill(torch.ones(shape, device="meta"))
    lazy = torch.nn.parameter.UninitializedParameter()
    with pytest.raises(ValueError, match="weight: expected a tensor with storage; got a parameter that is not initial"):
        fill(lazy)


@pytest.mark.filterwarnings("ignore")  # torch announces the end of its quantized tensors
def test_a_quantized_tensor_is_refused():
    weight = torch.quantize_per_tensor(torch.ones(4, 4), 0.1, 0, torch.qint8)
    with pytest.raises(TypeError, match=r"weight: expected a dense real tensor; got .*qint8"):
        sparse_orthogonal_(weight, 0.5)


@pytest.mark.parametrize("shape", [(4, 4, 3), (4, 4, 3, 3)])
def test_a_kernel_is_not_a_matrix_and_a_matrix_not_a_kernel(shape):
    for fill in MATRICES.values():
        with pytest.raises(ValueError, match="weight: expected 2 sides; got shape"):
            fill(torch.ones(shape))
    for fill in KERNELS.values():
        for wrong in (torch.ones(4, 4), torch.ones(4, 4, 1, 1, 1, 1)):
            with pytest.raises(ValueError, match="weight: expected 3 or 4 or 5 sides; got shape"):
                fill(wrong)


BOTH_SPARSE = [
    ({"density": 1.1}, ValueError, r"density: expected a number in \[0, 1\]; got 1.1"),
    ({"density": -0.1}, ValueError, "density: .*got -0.1"),
    ({"density": 1.0000001}, ValueError, "density: .*got 1.0000001"),
    ({"density": math.nan}, ValueError, "density: .*got nan"),
    ({"density": True}, TypeError, "density: .*got True"),
    ({"density": "0.1"}, TypeError, "density: .*got '0.1'"),
    ({}, TypeError, "density, count: expected exactly one of them; got density=None, count=None"),
    ({"density": 0.5, "count": 9}, TypeError, "density, count: .*got density=0.5, count=9"),
    ({"count": 9.0}, TypeError, r"count: expected an integer; got 9.0 \(float\)"),
    ({"count": True}, TypeError, "count: .*got True"),
    ({"count": -1}, ValueError, "count: .*got -1"),
    ({"count": 49}, ValueError, r"count: expected an integer in \[0, 48\]; got 49"),
    ({"density": 0.5, "floor": "lower"}, ValueError, "floor: expected one of error, minimal, partial; got 'lower'"),
    ({"density": 0.5, "stop": "never"}, ValueError, "stop: expected one of closest, exact, first; got 'never'"),
    ({"density": 0.5, "start": "zero"}, ValueError, "start: expected one of identity, permuted; got 'zero'"),
    ({"density": 0.5, "angle": math.inf}, ValueError, "angle: .*got inf"),
    ({"density": 0.0, "floor": "partial", "stop": "never"}, ValueError, "stop: .*got 'never'"),
    ({"density": 0.5, "threads": 0}, ValueError, "threads: .*got 0"),
    ({"density": 0.5, "gain": math.inf}, ValueError, "gain: expected a finite number.*got inf"),
    ({"density": 0.5, "gain": math.nan}, ValueError, "gain: .*got nan"),
    ({"density": 0.5, "gain": "tanh"}, TypeError, r"gain: .*got 'tanh' \(str\)"),
    ({"density": 0.5, "gain": 1e39}, ValueError, r"gain: .*at most 3.40282e\+38; got 1e\+39"),
]
KERNEL_ONLY = [
    ({"density": 0.5, "groups": 3}, ValueError, "groups: expected a divisor of 4, the weight's first side; got 3"),
    ({"density": 0.5, "groups": 0}, ValueError, "groups: .*got 0"),
    ({"density": 0.5, "groups": -2}, ValueError, "groups: .*got -2"),
    ({"density": 0.5, "groups": 2.0}, TypeError, "groups: expected an integer; got 2.0"),
    ({"density": 0.5, "tap": "edge"}, ValueError, "tap: expected one of center, mask, random; got 'edge'"),
    ({"density": 0.5, "center_density": 1.5}, ValueError, "center_density: .*got 1.5"),
    ({"density": 0.5, "center_density": math.nan}, ValueError, "center_density: .*got nan"),
    ({"density": 0.5, "center_density": False}, TypeError, "center_density: .*got False"),
]


@pytest.mark.parametrize(
    ("fill", "shape", "options", "error", "message"),
    [(sparse_orthogonal_, (6, 8), *case) for case in BOTH_SPARSE]
    + [(sparse_delta_orthogonal_, (4, 4, 3), *case) for case in BOTH_SPARSE + KERNEL_ONLY],
)
def test_a_bad_argument_is_named_and_the_weight_left_alone(fill, shape, options, error, message):
    weight = torch.full(shape, math.nan)
    bits = weight.view(torch.int32).clone()
    with pytest.raises(error, match=message):
        fill(weight, **options)
    assert torch.equal(weight.view(torch.int32), bits)


@pytest.mark.parametrize("fill", [delta_orthogonal_, conv_orthogonal_])
def test_the_dense_kernels_name_bad_arguments_too(fill):
    for options, message in [({"groups": 3}, "groups: .*got 3"), ({"gain": math.nan}, "gain: .*got nan")]:
        with pytest.raises(ValueError, match=message):
            fill(torch.ones(4, 4, 3), **options)
    with pytest.raises(ValueError, match="tap: expected one of center, mask, random; got 'left'"):
        delta_orthogonal_(torch.ones(4, 4, 3), tap="left")


@pytest.mark.gpu
@every_filler
def test_a_gpu_weight_has_the_bits_of_the_cpu(fill, shape):
    expected, returned = filled(fill, shape, torch.float32)
    weight = torch.empty(shape, device="cuda")
    mask = fill(weight, generator=seeded())
    assert mask.device == weight.device
    assert torch.equal(weight.cpu(), expected)
    assert torch.equal(mask.cpu(), returned)
