"""The exponential schedule by which iterative distributions come down to their count."""

from collections.abc import Mapping

from orthosparse.checks import check_density
from orthosparse.counts import count_of, densities_by_layer
from orthosparse.layers import Layer
from orthosparse.mappings import Budget, Density


def falling(density: Density, layers: Mapping[str, Layer], rounds: int, *, as_released: bool = False) -> list[Budget]:
    """Return the budgets after each round: of all layers together, or of each where densities are given by layer."""
    if as_released or not isinstance(density, Mapping):
        size = sum(layer.numel for layer in layers.values())
        return [*exponential(check_density(density), size, rounds, as_released=as_released)]
    own = densities_by_layer(density, layers)
    units = {name: exponential(own[name], layer.numel // layer.unit, rounds) for name, layer in layers.items()}
    return [{name: layer.unit * units[name][number] for name, layer in layers.items()} for number in range(rounds)]


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
