import itertools
import math

import pytest
import torch

from contracts.rounding import is_orthogonal, rounding_floor
from orthosparse import orthogonality
from orthosparse.orthogonality import (
    dead_inputs,
    dead_outputs,
    orthogonality_score,
    singular_values_of,
)

CONVOLUTIONS = {1: torch.nn.functional.conv1d, 2: torch.nn.functional.conv2d, 3: torch.nn.functional.conv3d}


def normal(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def haar(n, seed=0):
    return torch.linalg.qr(normal(n, n, seed=seed))[0]


def operator(weight, sizes, groups=1):
    """The matrix of the circular convolution, column by column, by torch's own convolution of every unit signal."""
    sides = weight.shape[2:]
    channels = weight.shape[1] * groups
    basis = torch.eye(channels * math.prod(sizes), dtype=weight.dtype).reshape(-1, channels, *sizes)
    padding = [pad for side in reversed(sides) for pad in (0, side - 1)]
    padded = torch.nn.functional.pad(basis, padding, mode="circular")
    return CONVOLUTIONS[len(sides)](padded, weight, groups=groups).flatten(1).T


def gram_distance(matrix):
    small = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    return float(torch.linalg.matrix_norm(small @ small.T - torch.eye(len(small), dtype=matrix.dtype)))


KERNELS = [
    ((3, 2, 3), [5], 1),
    ((2, 3, 2), [4], 1),
    ((2, 2, 3, 3), [5, 5], 1),
    ((2, 3, 1, 3), [3, 6], 1),
    ((4, 1, 2, 3), [3, 5], 4),
    ((4, 3, 3, 2), [5, 4], 2),
    ((2, 2, 2, 1, 2), [3, 2, 3], 1),
]


@pytest.mark.parametrize("shape", [(1, 1), (3, 3), (2, 5), (5, 2)])
def test_the_score_of_a_matrix_is_the_distance_of_its_smaller_gram_matrix_from_the_identity(shape):
    weight = normal(*shape)
    assert orthogonality_score(weight) == pytest.approx(gram_distance(weight), rel=1e-13)


def test_the_score_of_a_worked_example():
    # Rows (3, 4) and (0, 1): the Gram matrix minus the identity is [[24, 4], [4, 0]].
    weight = torch.tensor([[3.0, 4.0], [0.0, 1.0]])
    assert orthogonality_score(weight) == pytest.approx(math.sqrt(24**2 + 2 * 4**2), rel=1e-15)


@pytest.mark.parametrize(("shape", "sizes", "groups"), KERNELS)
def test_the_score_of_a_kernel_is_that_of_its_operator_over_the_root_of_the_number_of_pixels(shape, sizes, groups):
    weight = normal(*shape)
    expected = gram_distance(operator(weight, sizes, groups)) / math.sqrt(math.prod(sizes))
    assert orthogonality_score(weight, groups=groups, spatial=sizes) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("shape", "sizes", "groups"), KERNELS)
def test_singular_values_are_those_of_the_operator(shape, sizes, groups):
    weight = normal(*shape)
    values = singular_values_of(weight, groups=groups, spatial=sizes)
    assert values.shape == (math.prod(sizes), groups, min(shape[0] // groups, shape[1]))
    expected = torch.linalg.svdvals(operator(weight, sizes, groups))
    torch.testing.assert_close(values.flatten().sort(descending=True).values, expected, rtol=0, atol=1e-12)


def test_taps_wrap_around_a_signal_smaller_than_the_kernel():
    weight = normal(2, 2, 5)
    folded = torch.stack([weight[..., 0] + weight[..., 2] + weight[..., 4], weight[..., 1] + weight[..., 3]], dim=-1)
    assert orthogonality_score(weight, spatial=2) == pytest.approx(orthogonality_score(folded, spatial=2), rel=1e-13)


@pytest.mark.parametrize(("shape", "sizes", "groups"), KERNELS)
def test_the_default_score_is_that_of_every_signal_of_at_least_two_kernels_less_one(shape, sizes, groups):
    weight = normal(*shape)
    default = orthogonality_score(weight, groups=groups)
    for more in (0, 1, 2, 5):
        spatial = [2 * side - 1 + more for side in shape[2:]]
        assert orthogonality_score(weight, groups=groups, spatial=spatial) == pytest.approx(default, rel=1e-12)


def test_the_default_score_is_the_distance_of_the_autocorrelation_from_a_delta():
    weight = normal(2, 3, 3, 2)
    square = 0.0
    for down, right in itertools.product(range(-2, 3), range(-1, 2)):
        lag = torch.zeros(2, 2, dtype=torch.float64)
        for row, column in itertools.product(range(3), range(2)):
            if 0 <= row + down < 3 and 0 <= column + right < 2:
                lag += weight[:, :, row, column] @ weight[:, :, row + down, column + right].T
        square += float((lag - torch.eye(2) * (down == right == 0)).square().sum())
    assert orthogonality_score(weight) == pytest.approx(math.sqrt(square), rel=1e-13)


@pytest.mark.parametrize("kernel", [(1,), (3,), (1, 1), (2, 3), (3, 3, 3)])
def test_a_delta_kernel_has_the_score_of_its_matrix_wherever_its_tap_is(kernel):
    matrix = normal(3, 4)
    for tap in itertools.product(*map(range, kernel)):
        weight = torch.zeros(3, 4, *kernel, dtype=torch.float64)
        weight[(slice(None), slice(None), *tap)] = matrix
        assert orthogonality_score(weight) == pytest.approx(orthogonality_score(matrix), rel=1e-13)
        assert singular_values_of(weight).shape == (1, 1, 3)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("spatial", [2, 3, 5])
def test_a_shift_of_each_input_or_each_output_changes_no_singular_value(axis, spatial):
    matrix = normal(3, 4)
    weight = torch.zeros(3, 4, 3, dtype=torch.float64)
    for channel in range(matrix.shape[axis]):
        weight.select(axis, channel).select(1, channel % 3).copy_(matrix.select(axis, channel))
    values = singular_values_of(weight, spatial=spatial)
    assert values.shape == (spatial, 1, 3)
    torch.testing.assert_close(values, singular_values_of(matrix).expand_as(values))
    assert orthogonality_score(weight, spatial=spatial) == pytest.approx(orthogonality_score(matrix), rel=1e-13)
    if spatial >= 3:
        expected = torch.linalg.svdvals(operator(weight, [spatial]))
        torch.testing.assert_close(values.flatten().sort(descending=True).values, expected)


@pytest.mark.parametrize("shape", [(4, 6), (4, 6, 3), (6, 4, 2, 3)])
def test_float32_arithmetic_is_close_to_float64(shape):
    weight = normal(*shape, dtype=torch.bfloat16)
    exact = orthogonality_score(weight)
    rough = orthogonality_score(weight, dtype=torch.float32)
    assert rough == pytest.approx(exact, rel=1e-5)
    assert rough != exact


def test_a_kernel_of_all_zeros_is_as_far_from_orthogonal_as_the_zero_matrix():
    assert orthogonality_score(torch.zeros(4, 9, 3, 3)) == 2.0


def test_groups_add_up_as_blocks_of_one_matrix():
    first, second = normal(2, 3), normal(2, 3, seed=1)
    expected = math.hypot(orthogonality_score(first), orthogonality_score(second))
    assert orthogonality_score(torch.cat([first, second]), groups=2) == pytest.approx(expected, rel=1e-14)
    assert orthogonality_score(torch.block_diag(first, second)) == pytest.approx(expected, rel=1e-14)


def test_a_transposed_convolution_has_the_score_of_the_convolution_it_is_the_adjoint_of():
    weight = normal(4, 3, 3)
    adjoint = weight.unflatten(0, (2, 2)).transpose(1, 2).flatten(0, 1)
    score = orthogonality_score(weight, groups=2, transposed=True)
    assert score == pytest.approx(orthogonality_score(adjoint, groups=2), rel=1e-13)


def test_a_gain_is_divided_out():
    weight = 1.7 * haar(6)
    assert orthogonality_score(weight, gain=1.7) < 1e-14
    assert orthogonality_score(weight) == pytest.approx((1.7**2 - 1) * math.sqrt(6))
    assert is_orthogonal(weight, gain=-1.7)
    assert not is_orthogonal(weight)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("n", [1, 7, 64])
def test_rounding_an_orthogonal_matrix_stays_below_the_rounding_floor_and_near_it(dtype, n):
    weight = haar(n).to(dtype)
    score = orthogonality_score(weight)
    assert score <= rounding_floor(weight) / 2 * (1 + 1e-2)  # the floor is twice the bound eps sqrt(n)
    assert is_orthogonal(weight)
    if n > 1:
        assert score > rounding_floor(weight) / 100
        assert not is_orthogonal(weight, tol=score / 2)


def test_dead_channels_of_a_matrix_are_its_empty_rows_and_columns():
    weight = torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    assert dead_outputs(weight).tolist() == [False, True]
    assert dead_inputs(weight).tolist() == [True, False, True]
    assert dead_outputs(weight, transposed=True).tolist() == [True, False, True]
    assert dead_inputs(weight != 0, transposed=True).tolist() == [False, True]


def test_dead_channels_of_a_grouped_kernel_follow_its_groups():
    weight = torch.zeros(4, 3, 3)  # 2 groups: outputs 0, 1 read inputs 0..2; outputs 2, 3 read inputs 3..5
    weight[1, 0, 2], weight[2, 1, 0] = 1.0, -1.0
    assert dead_outputs(weight, groups=2).tolist() == [True, False, False, True]
    assert dead_inputs(weight, groups=2).tolist() == [False, True, True, True, False, True]
    for channel in range(6):
        signal = torch.zeros(1, 6, 4)
        signal[0, channel] = 1.0
        silent = not torch.nn.functional.conv1d(signal, weight, groups=2).any()
        assert silent == dead_inputs(weight, groups=2)[channel]


def test_dead_channels_of_a_transposed_convolution_are_those_that_torch_leaves_silent():
    weight = torch.zeros(4, 3, 2)  # stored (in, out / groups, taps)
    weight[1, 0, 1], weight[2, 1, 0] = 1.0, -1.0
    signal = torch.ones(1, 4, 5)
    silent = ~torch.nn.functional.conv_transpose1d(signal, weight, groups=2)[0].any(1)
    assert torch.equal(dead_outputs(weight, groups=2, transposed=True), silent)
    assert dead_inputs(weight, groups=2, transposed=True).tolist() == [True, False, False, True]


def test_a_parameter_half_precision_and_strides_are_no_obstacle():
    weight = torch.nn.Parameter(haar(6).to(torch.bfloat16).T)
    assert is_orthogonal(weight)
    assert is_orthogonal(torch.eye(8)[::2, ::2])
    assert orthogonality_score(torch.eye(3, dtype=torch.int64)) == 0.0
    assert is_orthogonal(torch.eye(3, dtype=torch.bool))


def test_a_default_device_does_not_matter():
    weight = normal(3, 2, 3)
    expected = orthogonality_score(weight)
    with torch.device("meta"):
        assert orthogonality_score(weight) == expected


@pytest.mark.parametrize(
    ("weight", "options", "error", "message"),
    [
        ([[1.0]], {}, TypeError, r"weight: expected a dense real tensor; got \[\[1.0\]\] \(list\)"),
        (torch.ones(3), {}, ValueError, r"weight: expected two or more sides.*got shape \(3,\)"),
        (torch.ones(()), {}, ValueError, "two or more sides"),
        (torch.ones(0, 3), {}, ValueError, r"none of them 0; got shape \(0, 3\)"),
        (torch.ones(2, 2, dtype=torch.complex64), {}, TypeError, "complex64"),
        (torch.eye(2).to_sparse(), {}, TypeError, "sparse_coo"),
        (torch.ones(2, 2, device="meta"), {}, ValueError, "with storage.*meta"),
        (torch.ones(4, 2, 3), {"groups": 3}, ValueError, "groups: expected a divisor of 4.*got 3"),
        (torch.ones(4, 2, 3), {"groups": 0}, ValueError, "groups: .*got 0"),
        (torch.ones(4, 2, 3), {"groups": True}, TypeError, "groups: expected an integer; got True"),
        (torch.ones(4, 2, 3), {"groups": 2.0}, TypeError, "groups: expected an integer; got 2.0"),
        (torch.ones(4, 2, 3), {"spatial": 0}, ValueError, "spatial: expected a positive integer, or 1 of them; got 0"),
        (torch.ones(4, 2, 3), {"spatial": (4, 4)}, ValueError, r"spatial: .*got \(4, 4\)"),
        (torch.ones(4, 2, 3, 3), {"spatial": (4, 4.0)}, ValueError, "spatial: .*or 2 of them"),
        (torch.ones(4, 2), {"gain": 0.0}, ValueError, "gain: expected a number other than 0"),
        (torch.ones(4, 2), {"gain": math.nan}, ValueError, "gain: expected a finite number; got nan"),
        (torch.ones(4, 2), {"dtype": torch.float16}, TypeError, "dtype: expected torch.float32 or .*got torch.float16"),
        (torch.ones(4, 2), {"gain": "2"}, TypeError, r"gain: expected a finite number; got '2' \(str\)"),
    ],
)
def test_bad_input_is_named(weight, options, error, message):
    with pytest.raises(error, match=message):
        orthogonality_score(weight, **options)


@pytest.mark.gpu
def test_the_score_on_a_gpu_is_that_on_the_cpu():
    weight = normal(5, 4, 3, 3)
    assert orthogonality.orthogonality_score(weight.cuda()) == pytest.approx(orthogonality_score(weight), rel=1e-12)
