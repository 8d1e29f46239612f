from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from orthosparse.init.spread import sparse_spread_orthogonal_
from orthosparse.orthogonality import orthogonality_score

sides = st.integers(1, 7)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def circulant(kernel, size):
    """The convolution of a picture of size x size that wraps around, as an explicit matrix, entry by entry."""
    first, second, rows, cols = kernel.shape
    matrix = torch.zeros(first, size, size, second, size, size, dtype=kernel.dtype)
    for y, x, row, col in product(range(size), range(size), range(rows), range(cols)):
        matrix[:, y, x, :, (y + row) % size, (x + col) % size] += kernel[:, :, row, col]
    return matrix.reshape(first * size**2, second * size**2)


@given(sides, sides, st.floats(0, 1), st.sampled_from([None, 0.0, 0.5]), st.integers(0, 999))
def test_the_explicit_matrix_is_orthogonal_and_the_count_exact(first, second, share, core, seed):
    least, size = min(first, second), first * second * 9
    weight, count = torch.empty(first, second, 3, 3).double(), least + round(share * (size - least))
    mask = sparse_spread_orthogonal_(weight, count=count, core=core, gain=1.5, generator=seeded(seed))
    assert int(mask.sum()) == count
    assert not weight[~mask].any()
    assert torch.linalg.svdvals(circulant(weight, 4)).tolist() == pytest.approx([1.5] * (16 * least), abs=1e-12)


@pytest.mark.parametrize(("shape", "density"), [((32, 32), 0.05), ((32, 16), 0.1), ((16, 48), 0.1), ((16, 16), 0.4)])
def test_pairs_of_channels_meet_at_several_taps_and_few_entries_are_zero(shape, density):
    weight = torch.empty(*shape, 3, 3)
    mask = sparse_spread_orthogonal_(weight, count=round(density * weight.numel()), generator=seeded())
    filled = weight.flatten(2) != 0
    assert int(filled.sum()) > 0.9 * int(mask.sum())
    assert filled.any(0).sum(-1).double().mean() > 2  # taps of an input channel; one where kernels are deltas


def test_the_seed_says_everything_and_threads_nothing():
    kernels = []
    for seed, threads in ((0, 1), (0, 4), (1, 1)):
        weight = torch.empty(24, 20, 3, 3)
        mask = sparse_spread_orthogonal_(weight, count=400, generator=seeded(seed), threads=threads)
        kernels.append((weight, mask))
    assert all(torch.equal(*pair) for pair in zip(kernels[0], kernels[1], strict=True))
    assert not torch.equal(kernels[0][1], kernels[2][1])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_every_dtype_rounds_the_same_kernel(dtype):
    exact, rounded = torch.empty(12, 10, 3, 3).double(), torch.empty(12, 10, 3, 3, dtype=dtype)
    masks = [sparse_spread_orthogonal_(weight, count=200, generator=seeded()) for weight in (exact, rounded)]
    assert torch.equal(*masks)
    assert torch.equal(exact.to(dtype), rounded)


@pytest.mark.parametrize("shape", [(6, 6, 5), (6, 4, 1, 3), (4, 6, 2, 2, 2)])
def test_kernels_have_any_number_of_sides(shape):
    weight = torch.empty(shape).double()
    sparse_spread_orthogonal_(weight, count=40, generator=seeded())
    assert orthogonality_score(weight) < 1e-12
