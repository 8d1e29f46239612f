"""The random words that every backend of the Givens sampler reads: a hash of a seed and a counter.

Word number c of a stream is the SplitMix64 finalizer of key + (c + 1) * GOLDEN modulo 2^64. So any word can
be computed without those before it, and a matrix depends only on its seed and its index in the batch: not on torch's
version, the thread, the shard or the other members of the batch.
"""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]
Floats = npt.NDArray[np.float64]

ROTATIONS, START, EXTRA = 1, 2, 3  # purposes of streams

_GOLDEN = 0x9E3779B97F4A7C15
_LOW = 2**64 - 1
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB

# Taylor's coefficients reach float64's precision on [-pi/4, pi/4]: the first term left out is below 5e-17. A compiled
# kernel that does the same operations in the same order gets the same bits on every platform, which libm does not.
_TAYLOR = [
    np.array([[(-1) ** (k + 1) / math.factorial(2 * k + 2)], [(-1) ** k / math.factorial(2 * k + 1)]])
    for k in range(7, 0, -1)
]
_QUARTERS = np.array([1, 1j, -1, -1j])


def _mixed(word: int) -> int:
    word = (word ^ (word >> 30)) * _FIRST & _LOW
    word = (word ^ (word >> 27)) * _SECOND & _LOW
    return word ^ (word >> 31)


def stream_key(seed: int, member: int, purpose: int) -> int:
    """Return the key of one purpose's stream, for one member of a batch."""
    return _mixed(_mixed(seed + (member + 1) * _GOLDEN & _LOW) + purpose * _GOLDEN & _LOW)


def words_at(key: int, counters: Words) -> Words:
    """Return the words of a stream at the given counters."""
    word = np.uint64(key) + (counters + np.uint64(1)) * np.uint64(_GOLDEN)
    word = (word ^ (word >> np.uint64(30))) * np.uint64(_FIRST)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(_SECOND)
    return word ^ (word >> np.uint64(31))


def words(key: int, how_many: int) -> list[int]:
    """Return the first words of a stream as Python integers."""
    return [int(word) for word in words_at(key, np.arange(how_many, dtype=np.uint64))]


def pairs(key: int, first: int, how_many: int, size: int) -> tuple[list[int], list[int]]:
    """Return `how_many` uniform pairs i < j < size, from attempt number `first` on (`size` below 2^31).

    Each half of a word is scaled to its range, so that a pair's probability is right to within size / 2^32 of it.
    """
    word = words_at(key, 2 * np.arange(first, first + how_many, dtype=np.uint64))
    half = np.uint64(32)
    one = (word >> half) * np.uint64(size) >> half
    other = (word & np.uint64(2**32 - 1)) * np.uint64(size - 1) >> half
    other += other >= one
    return np.minimum(one, other).tolist(), np.maximum(one, other).tolist()


def turns(key: int, attempts: Sequence[int]) -> tuple[list[float], list[float]]:
    """Return cosines and sines of the attempts' angles, uniform on [0, 2 pi) and never a multiple of pi/2."""
    word = words_at(key, 2 * np.array(attempts, dtype=np.uint64) + np.uint64(1))
    # Two bits choose the quarter turn, 52 bits the angle within it, as an odd multiple of 2^-53: never 0.
    inside = (word & np.uint64(2**62 - 1)) >> np.uint64(10)
    angle = ((inside * np.uint64(2) + np.uint64(1)).astype(np.float64) * 2.0**-53 - 0.5) * (math.pi / 2)
    phases = np.empty(len(word), dtype=np.complex128)
    phases.real, phases.imag = _cos_sin(angle)
    phases *= _QUARTERS[word >> np.uint64(62)]  # exact: products with 0, 1 and -1
    return phases.real.tolist(), phases.imag.tolist()


def _cos_sin(angle: Floats) -> tuple[Floats, Floats]:
    square = angle * angle
    both = np.repeat(_TAYLOR[0], len(angle), axis=1)
    for coefficients in _TAYLOR[1:]:
        both = both * square + coefficients
    cosine, sine = both
    return 1.0 - (0.5 * square - square * square * cosine), angle + angle * square * sine
