import contextlib
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orthosparse.archives.gaps import decode, encode

CHOICES = st.integers(1, 3000).flatmap(
    lambda below: st.tuples(st.just(below), st.sets(st.integers(0, below - 1), max_size=200))
)


def decoded(code, *args):
    return decode(np.frombuffer(bytes(code), dtype=np.uint8), *args)


@given(CHOICES)
def test_decoding_returns_the_numbers_that_were_encoded(choice):
    below, chosen = choice
    numbers = np.array(sorted(chosen), dtype=np.int64)
    low_bits, code = encode(numbers)
    assert decoded(code, len(numbers), low_bits, below).tolist() == numbers.tolist()


@given(CHOICES)
def test_the_code_is_never_longer_than_the_bitmap(choice):
    numbers = np.array(sorted(choice[1]), dtype=np.int64)
    assert len(encode(numbers)[1]) <= -(-(numbers.max(initial=-1) + 1) // 8) + 1  # two parts that end at whole bytes


@pytest.mark.parametrize("density", [0.5, 0.1, 0.01, 0.001])
def test_random_places_take_at_most_a_twentieth_more_than_their_entropy(density):
    size = 2**20
    numbers = np.flatnonzero(np.random.default_rng(0).random(size) < density)
    entropy = -size * (density * math.log2(density) + (1 - density) * math.log2(1 - density))
    assert 8 * len(encode(numbers)[1]) < 1.05 * entropy


def test_without_low_bits_the_code_is_the_bitmap():
    bitmap = np.random.default_rng(0).random(800) < 0.6
    bitmap[-1] = True
    low_bits, code = encode(np.flatnonzero(bitmap))
    assert low_bits == 0
    assert code.tolist() == np.packbits(bitmap).tolist()


@pytest.mark.parametrize(
    ("change", "arguments"),
    [
        ("a number fewer", (2, 0, 6)),
        ("a number more", (4, 0, 6)),
        ("not below", (3, 0, 5)),
        ("shifted past 64 bits", (3, 62, 6)),
        ("shifted out of sight", (3, 64, 6)),
        ("nothing below nothing", (3, 0, 0)),
    ],
)
def test_a_forged_code_is_refused(change, arguments):
    with pytest.raises(ValueError, match="expected the code of"):
        decoded(encode(np.array([1, 2, 5]))[1], *arguments)


def test_low_bits_whose_sum_passes_64_bits_are_refused():
    count, low_bits = 8, 62
    code = np.packbits(np.ones(count * low_bits + count, dtype=np.uint8)).tobytes()
    with pytest.raises(ValueError, match="expected the code of numbers below"):
        decoded(code, count, low_bits, 2**62)


@given(st.binary(max_size=40), st.integers(0, 60), st.integers(0, 70), st.integers(0, 500))
def test_any_bytes_are_rising_numbers_below_the_bound_or_refused(code, count, low_bits, below):
    with contextlib.suppress(ValueError):
        numbers = decoded(code, count, low_bits, below).tolist()
        assert len(numbers) == count
        assert numbers == sorted(set(numbers))
        assert all(0 <= number < below for number in numbers)
