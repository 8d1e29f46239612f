"""The exponential schedule by which iterative distributions come down to their count."""

from orthosparse.counts import count_of


def exponential(density: float, size: int, rounds: int) -> list[int]:
    """Return the counts after each round: density ** (round / rounds) of `size`, the last one exactly `density`.

    Example:
        >>> exponential(0.01, 10_000, 4)
        [3162, 1000, 316, 100]
    """
    if isinstance(rounds, bool) or not isinstance(rounds, int) or rounds < 1:
        raise ValueError(f"rounds: expected an integer of at least 1; got {rounds!r}")
    shares = [density ** (number / rounds) for number in range(1, rounds)]
    return [count_of(share, size) for share in (*shares, density)]
