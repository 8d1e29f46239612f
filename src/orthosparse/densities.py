"""Densities given by layer: names and globs turned into one density for each layer that they match."""

from collections.abc import Iterable, Mapping

from orthosparse.checks import check_density, check_mapping
from orthosparse.mappings import Densities, Density
from orthosparse.registry import did_you_mean, listed
from orthosparse.selection import matches_pattern


def check_densities(density: Density | None) -> Density:
    """Return a density as a float, or a mapping as it is.

    Raises:
        TypeError: neither of them.
        ValueError: NaN, or outside [0, 1].
    """
    return density if isinstance(density, Mapping) else check_density(density)


def densities_by_layer(density: Mapping[str, float], names: Iterable[str]) -> Densities:
    """Return the densities of the layers that are matched, in the order of `names`; the last match wins.

    A name or a glob stands for the layers that it matches, and for all layers of a module that it matches.

    Raises:
        TypeError: not a mapping from strings to numbers.
        ValueError: nothing at all, a number outside [0, 1], or a pattern that matches no layer.

    Example:
        >>> densities_by_layer({"*": 0.1, "head": 1.0}, ["body.0", "body.1", "head"])
        {'body.0': 0.1, 'body.1': 0.1, 'head': 1.0}
    """
    check_mapping("density", density, object)
    if not density:
        raise ValueError("density: expected a density for at least one layer; got {}")
    below: dict[str, list[str]] = {}  # the layers of each module, and each layer itself
    for name in names:
        parts = name.split(".")
        for number in range(1, len(parts) + 1):
            below.setdefault(".".join(parts[:number]), []).append(name)
    found: Densities = {}
    for pattern, value in density.items():
        checked = check_density(value, f"density: {pattern!r}")
        found |= dict.fromkeys(_matched(pattern, below), checked)
    return {name: found[name] for name in below if name in found}


def _matched(pattern: str, below: Mapping[str, list[str]]) -> list[str]:
    plain = not any(sign in pattern for sign in "*?[")
    around = [pattern] if plain and pattern in below else [name for name in below if matches_pattern(pattern, name)]
    if not around:
        layers = [name for name, names in below.items() if name in names]
        raise ValueError(
            f"density: expected names or globs of layers to sparsify ({listed(layers)}); "
            f"{pattern!r} matches none of them{did_you_mean(pattern, below)}"
        )
    return [layer for name in around for layer in below[name]]
