from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from orthosparse.counts import count_of
from orthosparse.distributions._masks import exponential


@given(st.floats(0, 1), st.integers(0, 10**6), st.integers(1, 200))
def test_counts_never_rise_and_end_at_the_density(density, size, rounds):
    counts = exponential(density, size, rounds)
    assert len(counts) == rounds
    assert counts == sorted(counts, reverse=True)
    assert counts[-1] == count_of(density, size)


def test_every_round_keeps_the_same_fraction():
    counts = exponential(0.01, 10**9, 100)
    assert all(abs(b / a - 0.01**0.01) < 1e-6 for a, b in pairwise(counts))


@given(st.floats(0, 1), st.integers(0, 10**6), st.integers(1, 200))
def test_the_released_rule_rounds_down_what_is_removed_of_all_weights(density, size, rounds):
    counts = exponential(density, size, rounds, as_released=True)
    removed = [int(size * (1.0 - density ** (number / rounds))) for number in range(1, rounds + 1)]
    assert counts == [size - each for each in removed]
    assert 0 <= counts[-1] - count_of(density, size) <= 1
