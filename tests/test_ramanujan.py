import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from contracts.seeded import seeded
from orthosparse import ramanujan
from orthosparse.hardware import on_threads

SIZES = st.integers(1, 24)


@given(SIZES, SIZES, st.integers(0, 10**6))
def test_every_degree_listed_gives_an_exactly_regular_mask(rows, cols, seed):
    for degree in ramanujan.degrees_of((rows, cols)):
        mask = ramanujan.regular_bipartite_mask((rows, cols), degree, generator=seeded(seed))
        across, along = degree * min(rows, cols) // max(rows, cols), degree
        by_row, by_col = (along, across) if rows <= cols else (across, along)
        assert mask.shape == (rows, cols)
        assert mask.sum(1).tolist() == [by_row] * rows
        assert mask.sum(0).tolist() == [by_col] * cols


@given(SIZES, SIZES, st.integers(0, 10**6))
def test_matrices_are_orthogonal_at_rounding_level_and_zero_off_their_mask(rows, cols, seed):
    for degree in ramanujan.degrees_of((rows, cols)):
        values, mask = ramanujan.sample((rows, cols), degree, generator=seeded(seed))
        gram = values @ values.T if rows <= cols else values.T @ values
        assert values.dtype == torch.float64
        assert torch.allclose(gram, torch.eye(min(rows, cols), dtype=torch.float64), rtol=0, atol=1e-13)
        assert torch.equal(values[~mask], torch.zeros_like(values[~mask]))
        assert torch.equal(mask, ramanujan.regular_bipartite_mask((rows, cols), degree, generator=seeded(seed)))


def test_degrees_worked_by_hand():
    assert ramanujan.degrees_of((128, 128)) == [1, 2, 4, 8, 16, 32, 64, 128]
    assert ramanujan.degrees_of((10, 64)) == [32, 64]  # 10 d / 64 is an integer from d = 32 on
    assert ramanujan.degrees_of((9, 4)) == [9]
    assert ramanujan.degrees_of((1, 7)) == [7]


@given(SIZES, SIZES, st.integers(-1, 30))
def test_other_degrees_are_refused_with_the_list_of_those_that_work(rows, cols, degree):
    allowed = ramanujan.degrees_of((rows, cols))
    if degree in allowed:
        return
    with pytest.raises(ValueError, match="degree: expected a divisor") as caught:
        ramanujan.sample((rows, cols), degree)
    assert f"({', '.join(map(str, allowed))}); got {degree}" in str(caught.value)


@pytest.mark.parametrize("degree", [2.0, True, "2", None])
def test_a_degree_that_is_no_integer_is_a_type_error(degree):
    with pytest.raises(TypeError, match="degree: expected an integer"):
        ramanujan.sample((4, 4), degree)


@pytest.mark.parametrize("shape", [(16, 16), (1, 1), (300, 300)])
def test_degree_one_is_a_signed_permutation(shape):
    values, mask = ramanujan.sample(shape, 1, generator=seeded())
    assert torch.equal(values.abs(), mask.double())
    assert torch.equal(values @ values.T, torch.eye(shape[0], dtype=torch.float64))
    if shape[0] > 100:  # a fair coin misses [100, 200] with probability below 1e-8
        assert 100 < int((values > 0).sum()) < 200


def test_supports_of_two_rows_are_equal_or_disjoint():
    mask = ramanujan.regular_bipartite_mask((24, 36), 9, generator=seeded()).int()
    assert set((mask @ mask.T).flatten().tolist()) == {0, 9}


def test_values_are_uniform_on_the_orthogonal_group():
    # Haar moments for c = 3: E x = 0, E x^2 = 1/c, E x^4 = 3 / (c (c + 2)), E det = 0. Standard errors of 4,000 draws
    # are sqrt(1/3), sqrt(1/5 - 1/9), sqrt(1/9 - 1/25) (as E x^8 = 1/9), 1, over sqrt(4000); five of them are allowed.
    generator = seeded()
    draws = torch.stack([ramanujan.sample((3, 3), 3, generator=generator)[0] for _ in range(4000)])
    for index in ((0, 0), (1, 2)):
        x = draws[:, *index]
        assert abs(float(x.mean())) < 5 * 0.0092
        assert abs(float(x.square().mean()) - 1 / 3) < 5 * 0.0048
        assert abs(float(x.pow(4).mean()) - 1 / 5) < 5 * 0.0043
    assert abs(float(torch.linalg.det(draws).mean())) < 5 * 0.0159


def test_the_same_seed_gives_the_same_bits_on_any_number_of_threads():
    drawn = []
    for number in (1, 2):
        with on_threads(number):
            drawn.append(ramanujan.sample((256, 512), 128, generator=seeded(3)))
            assert torch.get_num_threads() == number
    assert torch.equal(drawn[0][0], drawn[1][0])
    assert torch.equal(drawn[0][1], drawn[1][1])
    assert not torch.equal(drawn[0][1], ramanujan.sample((256, 512), 128, generator=seeded(4))[1])


def test_without_a_generator_draws_differ_and_the_global_one_is_untouched():
    before = torch.get_rng_state()
    first, second = (ramanujan.sample((8, 8), 4)[0] for _ in range(2))
    assert not torch.equal(first, second)
    assert torch.equal(torch.get_rng_state(), before)


def test_second_singular_values_worked_by_hand():
    six_cycle = torch.tensor([[1, 1, 0], [0, 1, 1], [1, 0, 1]], dtype=torch.bool)  # singular values 2, 1, 1
    assert ramanujan.second_singular_value(six_cycle) == pytest.approx(1)
    assert ramanujan.second_singular_value(torch.ones(2, 3, dtype=torch.bool)) == 0
    assert ramanujan.second_singular_value(torch.block_diag(torch.ones(2, 3), torch.ones(2, 3))) == pytest.approx(
        math.sqrt(6)
    )
    assert ramanujan.second_singular_value(torch.ones(1, 4)) == 0


def test_the_fano_plane_is_ramanujan():
    lines = [(0, 1, 2), (0, 3, 4), (0, 5, 6), (1, 3, 5), (1, 4, 6), (2, 3, 6), (2, 4, 5)]
    incidence = torch.zeros(7, 7)
    for row, points in enumerate(lines):
        incidence[row, list(points)] = 1
    # A A^T = 2 I + J: squares of the singular values are 9 and, six times, 2.
    assert ramanujan.second_singular_value(incidence) == pytest.approx(math.sqrt(2))
    assert ramanujan.second_singular_value(incidence) <= ramanujan.ramanujan_bound(3, 3)


@pytest.mark.parametrize(("shape", "degree"), [((16, 16), 4), ((12, 24), 4), ((24, 12), 4)])
def test_the_graph_below_full_density_is_disconnected(shape, degree):
    # What the paper calls a Ramanujan expander is a union of complete bipartite graphs: no gap at all.
    mask = ramanujan.regular_bipartite_mask(shape, degree, generator=seeded())
    across = degree * min(shape) // max(shape)
    assert ramanujan.second_singular_value(mask) == pytest.approx(math.sqrt(degree * across))
    assert ramanujan.second_singular_value(torch.ones(shape)) == 0
