"""The budgets that layers share, at once or falling in rounds, and the masks that spend them."""

from collections.abc import Mapping

import torch
from torch import nn

from orthosparse.aliases import Budget, Counts, Densities, Density, Masks, Scores
from orthosparse.checks import check_at_least, check_density
from orthosparse.counts import apportion, check_densities, count_of, densities_by_layer, in_units
from orthosparse.hardware import workers
from orthosparse.layers import Layer, find_layers, unwrapped
from orthosparse.masks import ScoredMasks, draw, top_units
from orthosparse.randomness import derive, draw_seed
from orthosparse.structures import ENTRIES, TWO_OF_FOUR, two_of_four


def budget_of(
    model: nn.Module, density: Density, layers: Mapping[str, Layer] | None
) -> tuple[dict[str, Layer], Budget]:
    """Return the layers that share the budget, and the budget: the integer nearest to ``density * weights``.

    If densities are given by layer, these are the layers that have one, and the count of each, in whole units.

    Args:
        density: the density that the distribution got.
        layers: the layers that may share the budget; by default, all that `find_layers` finds.

    Raises:
        ValueError: the density is invalid (the structure 2:4 needs 0.5), the layers are those of another model, or
            there are none.
    """
    density = check_densities(density)
    found = find_layers(model) if layers is None else dict(layers)
    if not found:
        raise ValueError("model: expected at least one layer to sparsify; found none")
    parameters = {id(parameter) for parameter in unwrapped(model).parameters()}
    for name, layer in found.items():
        if id(layer.parameter()) not in parameters:
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
        if layer.structure == TWO_OF_FOUR and densities[name] != 0.5:
            raise ValueError(f"density: expected 0.5 with structure '2:4'; got {densities[name]!r} for {name!r}")


def share(layers: Mapping[str, Layer], shares: Mapping[str, float], budget: Budget) -> Counts:
    """Split the budget over the layers in proportion to `shares`, in whole units, up to the size of each layer.

    A budget with a number for each layer is returned as it is. Layers of the structure 2:4 keep half of their weights,
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
    if compat not in (None, "paper-code"):
        raise ValueError(f"compat: expected None or 'paper-code'; got {compat!r}")
    return compat is not None


def falling(density: Density, layers: Mapping[str, Layer], rounds: int, *, as_released: bool = False) -> list[Budget]:
    """Return the budgets after each round: of all layers together, or of each where densities are given by layer."""
    if as_released or not isinstance(density, Mapping):
        size = sum(layer.numel for layer in layers.values())
        return [*exponential(check_density(density), size, rounds, as_released=as_released)]
    by_layer = densities_by_layer(density, layers)
    units = {name: exponential(by_layer[name], layer.numel // layer.unit, rounds) for name, layer in layers.items()}
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
    check_at_least(rounds, 1, "rounds")
    if as_released:
        return [size - int((1.0 - density ** (number / rounds)) * size) for number in range(1, rounds + 1)]
    shares = [density ** (number / rounds) for number in range(1, rounds)]
    return [count_of(share, size) for share in (*shares, density)]


def random_masks(layers: Mapping[str, Layer], counts: Counts, generator: torch.Generator | None) -> Masks:
    """Return random masks with exactly these counts; the mask of a layer depends only on the seed and its name.

    Args:
        layers: the layers to draw masks for, by name.
        counts: number of active entries in each layer, in whole units of its structure.
        generator: the seed is drawn from it; None takes one from the operating system.

    Raises:
        ValueError: the structure of a layer is 2:4, and its count is not half of its weights.
    """
    seed = draw_seed(generator)

    def drawn(name: str) -> torch.Tensor:
        return _drawn(layers[name], counts[name], derive(seed, name, "mask"))

    with workers([layer.numel for layer in layers.values()]) as parallel_map:
        masks = dict(zip(layers, parallel_map(drawn, layers), strict=True))
    return _on_layer_devices(layers, masks)


def _drawn(layer: Layer, count: int, generator: torch.Generator) -> torch.Tensor:
    if layer.structure != TWO_OF_FOUR:
        return draw(layer.shape, count, block=layer.block, generator=generator)
    if 2 * count != layer.numel:
        got = f"{layer.name!r} {count / layer.numel:.6g}"
        raise ValueError(f"structure: '2:4' has density 0.5 in every layer; this distribution gives {got}")
    rows, cols = two_of_four(layer.shape[:2], generator)
    return (rows[:, None] == cols).reshape(layer.shape)


def bernoulli(layers: Mapping[str, Layer], densities: Densities, generator: torch.Generator | None) -> Masks:
    """Return masks whose every entry is an independent coin, so that their counts are random."""
    check_entries(layers)
    seed, masks = draw_seed(generator), Masks()
    for name, layer in layers.items():
        coins = torch.rand(layer.shape, generator=derive(seed, name, "mask"), dtype=torch.float32, device="cpu")
        masks[name] = coins < densities[name]
    return _on_layer_devices(layers, masks)


def check_entries(layers: Mapping[str, Layer]) -> None:
    """Raise unless the units of all layers are entries, which is all that the released code knows."""
    for name, layer in layers.items():
        if layer.structure != ENTRIES:
            got = f"{layer.structure!r} for {name!r}"
            raise ValueError(f"compat: 'paper-code' has entries alone; expected structure 'entries'; got {got}")


def top_scored(layers: Mapping[str, Layer], scores: Scores, budget: Budget, within: Masks | None = None) -> ScoredMasks:
    """Return masks of the largest scores: over all layers together, or in each layer if the budget is by layer.

    Blocks are ranked by their mean scores. If `within` is given, the masks lie inside its masks.

    Args:
        layers: the scored layers, by name.
        scores: scores in the shapes of the layers' weights; larger is better.
        budget: number of entries to keep, as `budget_of` returns it.

    Raises:
        ValueError: the structure of a layer is 2:4, for which masks are only drawn at random.
    """
    for name, layer in layers.items():
        if layer.structure == TWO_OF_FOUR:
            raise ValueError(f"structure: '2:4' is drawn, not scored ({name!r}); expected distribution 'uniform'")
    if len({score.device for score in scores.values()}) > 1:
        scores = {name: score.cpu() for name, score in scores.items()}
    blocks = {name: layer.block for name, layer in layers.items()}
    if isinstance(budget, int):
        masks = top_units(scores, blocks, budget, within)
    else:
        masks = {}
        for name, score in scores.items():
            masks |= top_units({name: score}, {name: blocks[name]}, budget[name], within)
    return ScoredMasks(_on_layer_devices(layers, masks), scores)


def _on_layer_devices(layers: Mapping[str, Layer], masks: Masks) -> Masks:
    """Return each mask on its layer's device (on the CPU for layers on the meta device)."""
    devices = {name: layer.parameter().device for name, layer in layers.items()}
    return {name: mask.to("cpu" if devices[name].type == "meta" else devices[name]) for name, mask in masks.items()}
