import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from orthosparse import givens
from orthosparse.gram import _backend, python_backend, sparse_squares

BACKENDS = [pytest.param(_backend(), id="auto"), pytest.param(python_backend, id="python")]


def explicit(matrix, scale):
    a = matrix.double() * scale
    a = a if a.shape[0] >= a.shape[1] else a.T
    return float((a.T @ a - torch.eye(a.shape[1], dtype=torch.float64)).square().sum())


def sparse(rows, cols, density, seed, dtype=torch.float32):
    g = torch.Generator().manual_seed(seed)
    return (torch.randn(rows, cols, generator=g) * (torch.rand(rows, cols, generator=g) < density)).to(dtype)


@pytest.mark.parametrize("backend", BACKENDS)
@given(st.integers(1, 40), st.integers(1, 40), st.floats(0, 1), st.integers(0, 9), st.sampled_from([0.25, 1.0, 3.0]))
def test_it_is_the_explicit_gram_matrixs_distance_from_the_identity(backend, rows, cols, density, seed, scale):
    for dtype in (torch.float32, torch.float64):
        matrix = sparse(rows, cols, density, seed, dtype)
        found = backend.squares(matrix.numpy(), rows, cols, scale, 10**9, 1)
        assert found == pytest.approx(explicit(matrix, scale), rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("shape", [(300, 200), (200, 300)])
def test_rounding_of_float32_is_all_that_an_orthogonal_matrix_has(backend, shape):
    matrix, _ = givens.sample(shape, 3000, generator=torch.Generator().manual_seed(0), dtype=torch.float32)
    found = math.sqrt(backend.squares(matrix.numpy(), *shape, 1.0, 10**9, 1))
    assert found == pytest.approx(math.sqrt(explicit(matrix, 1.0)), rel=1e-6)
    assert 1e-9 < found < 2 * torch.finfo(torch.float32).eps * math.sqrt(200)


def test_the_bits_do_not_depend_on_the_number_of_threads():
    matrix = sparse(400, 300, 0.05, 0)
    assert len({sparse_squares(matrix, threads=threads) for threads in (1, 2, 5)}) == 1


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("shape", [(128, 64), (64, 128)])
def test_what_takes_too_many_products_is_left_to_others(backend, shape):
    matrix = sparse(*shape, 0.2, 0)
    assert backend.squares(matrix.numpy(), *shape, 1.0, 10, 1) is None
    assert backend.squares(matrix.numpy(), *shape, 1.0, 10**6, 1) is not None


def test_a_transposed_matrix_is_read_where_it_lies():
    matrix = sparse(300, 200, 0.05, 1)
    assert sparse_squares(matrix.T) == sparse_squares(matrix) == pytest.approx(explicit(matrix, 1.0), rel=1e-12)
    assert sparse_squares(matrix[:, ::2]) == pytest.approx(explicit(matrix[:, ::2], 1.0), rel=1e-12)


def test_other_types_are_left_to_others():
    assert sparse_squares(torch.zeros(4, 4, dtype=torch.bfloat16)) is None
    assert sparse_squares(torch.zeros(4, 4, device="meta")) is None


def test_nan_is_not_lost():
    matrix = sparse(300, 200, 0.02, 2)
    matrix[5, 7] = torch.nan
    assert math.isnan(sparse_squares(matrix))
