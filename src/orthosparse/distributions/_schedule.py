"""The exponential schedule by which iterative distributions come down to their count."""

from orthosparse.counts import count_of


def exponential(density: float, size: int, rounds: int, *, as_released: bool = False) -> list[int]:
    """Return the counts after each round: density ** (round / rounds) of `size`, the last one exactly `density`.

    Args:
        as_released: round as the paper's released code does: what is removed of all weights is rounded down.

    Example:
        >>> exponential(0.01, 10_000, 4)
        [3162, 1000, 316, 100]
        >>> exponential(0.01, 10_000, 4, as_released=True)
        [3163, 1000, 317, 100]
    """
    if isinstance(rounds, bool) or not isinstance(rounds, int) or rounds < 1:
        raise ValueError(f"rounds: expected an integer of at least 1; got {rounds!r}")
    if as_released:
        return [size - int((1.0 - density ** (number / rounds)) * size) for number in range(1, rounds + 1)]
    shares = [density ** (number / rounds) for number in range(1, rounds)]
    return [count_of(share, size) for share in (*shares, density)]
