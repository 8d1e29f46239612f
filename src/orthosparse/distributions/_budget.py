"""What is asked of a distribution: in which layers, how many weights in all and in each, and by whose definition."""

from collections.abc import Mapping

from torch import nn

from orthosparse.counts import apportion, check_densities, count_of, densities_by_layer, in_units
from orthosparse.layers import Layer, find_layers, unwrapped
from orthosparse.mappings import Budget, Counts, Density
from orthosparse.structures import TWO_OF_FOUR

PAPER_CODE = "paper-code"
HALF = 0.5


def budget_of(
    model: nn.Module, density: Density, layers: Mapping[str, Layer] | None
) -> tuple[dict[str, Layer], Budget]:
    """Return the layers that share the budget, and the budget: the integer nearest to ``density * their weights``.

    Where densities are given by layer, it is the layers that have one, and a number for each, in whole units.

    Args:
        density: as a distribution is given it.
        layers: those of the model that may share it; by default all that `find_layers` finds.

    Raises:
        ValueError: a bad density (any but 0.5 for the structure 2:4), layers of another model, or none at all.
    """
    density = check_densities(density)
    found = find_layers(model) if layers is None else dict(layers)
    if not found:
        raise ValueError("model: expected at least one layer to sparsify; found none")
    own = {id(parameter) for parameter in unwrapped(model).parameters()}
    for name, layer in found.items():
        if id(layer.parameter()) not in own:
            raise ValueError(f"layers: expected layers of this model; {name!r} belongs to another one")
    if not isinstance(density, Mapping):
        _check_halves(found, dict.fromkeys(found, density))
        return found, count_of(density, sum(layer.numel for layer in found.values()))
    densities = densities_by_layer(density, found)
    found = {name: found[name] for name in densities}
    _check_halves(found, densities)
    return found, {n: layer.unit * count_of(densities[n], layer.numel // layer.unit) for n, layer in found.items()}


def _check_halves(layers: Mapping[str, Layer], densities: Mapping[str, float]) -> None:
    for name, layer in layers.items():
        if layer.structure == TWO_OF_FOUR and densities[name] != HALF:
            raise ValueError(f"density: expected 0.5 with structure '2:4'; got {densities[name]!r} for {name!r}")


def share(layers: Mapping[str, Layer], shares: Mapping[str, float], budget: Budget) -> Counts:
    """Split the budget over the layers in proportion to `shares`, each in whole units of its own, at most all of it.

    A budget that has a number for each layer is split already. Layers of the structure 2:4 have half of their weights,
    whatever their shares.
    """
    if any(layer.structure == TWO_OF_FOUR for layer in layers.values()):
        return {name: layer.numel // 2 for name, layer in layers.items()}
    if not isinstance(budget, int):
        return budget
    caps = {name: layer.numel for name, layer in layers.items()}
    return in_units(apportion(shares, budget, caps), {name: layer.unit for name, layer in layers.items()}, caps)


def sides_of(layer: Layer) -> int:
    """Return n_in + n_out, summed over the matrices that lie in a fused tensor: fusing them changes nothing.

    A convolution counts by its stored sides, (out, in / groups), whatever its groups.
    """
    first, second = layer.shape[layer.stacked : layer.stacked + 2]
    outputs, inputs = (second, first) if layer.transposed else (first, second)
    return layer.experts * (outputs + len(layer.parts) * inputs)


def follows_paper_code(compat: str | None) -> bool:
    """Whether the released code of the paper is to be followed where it departs from the definition.

    Raises:
        ValueError: `compat` is neither None nor ``"paper-code"``.
    """
    if compat not in (None, PAPER_CODE):
        raise ValueError(f"compat: expected None or {PAPER_CODE!r}; got {compat!r}")
    return compat is not None
