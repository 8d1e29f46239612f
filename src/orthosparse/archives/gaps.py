"""A Rice code of the gaps between increasing integers: close to the fewest bits that a random subset needs.

A gap is how many integers are skipped before the next one. Its `low_bits` lowest bits are stored as they are, and the
value of its higher bits in unary: as many zeros, and a one. With no low bits, the code is a bitmap up to the last one.
(R. F. Rice, *Some practical universal noiseless coding techniques*, JPL Publication 79-22, 1979.)
"""

import numpy as np
from numpy.typing import NDArray

_LIMIT = 62  # bits of a number: more than any tensor needs, and the sum of two fits 64


def encode(numbers: NDArray[np.int64]) -> tuple[int, NDArray[np.uint8]]:
    """Return how many low bits make the shortest code, and the code of increasing integers from 0 on.

    Example:
        >>> encode(np.array([1, 2, 5]))
        (0, array([100], dtype=uint8))
    """
    gaps = np.diff(numbers, prepend=-1) - 1
    longest = int(gaps.max(initial=0)).bit_length()
    low_bits = min(range(longest + 1), key=lambda bits: len(gaps) * bits + int((gaps >> bits).sum()))
    low = np.empty((len(gaps), low_bits), dtype=np.uint8)
    for bit in range(low_bits):
        low[:, bit] = (gaps >> bit) & 1
    ends = np.cumsum((gaps >> low_bits) + 1)
    unary = np.zeros(ends[-1] if len(ends) else 0, dtype=np.uint8)
    unary[ends - 1] = 1
    return low_bits, np.concatenate([np.packbits(low), np.packbits(unary)])


def decode(code: NDArray[np.uint8], count: int, low_bits: int, below: int) -> NDArray[np.int64]:
    """Return the `count` numbers, each less than `below`, whose code this is.

    Raises:
        ValueError: it is not the code of such numbers.

    Example:
        >>> decode(np.array([100], dtype=np.uint8), 3, low_bits=0, below=6)
        array([1, 2, 5])
    """
    bits, middle = np.unpackbits(code), -(-count * low_bits // 8) * 8
    ends = np.flatnonzero(bits[middle:])
    high = np.diff(ends, prepend=-1) - 1
    # As a Python integer: what a forged code is shifted to may not fit 64 bits.
    if low_bits > _LIMIT or below > 2**_LIMIT or len(ends) != count or int(high.sum()) << low_bits > below:
        raise ValueError(f"expected the code of {count} numbers below {below}")
    gaps = high << low_bits
    for bit in range(low_bits):
        gaps += bits[bit : count * low_bits : low_bits].astype(np.int64) << bit
    numbers: NDArray[np.int64] = np.cumsum(gaps + 1) - 1
    # All of them, not the last alone: the first sum past 64 bits comes out negative.
    if ((numbers < 0) | (numbers >= below)).any():
        raise ValueError(f"expected the code of numbers below {below}")
    return numbers
