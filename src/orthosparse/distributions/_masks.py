"""Masks on the device of their layers: of random units, of independent coins, of the largest scores."""

from collections.abc import Mapping

import torch

from orthosparse.layers import Layer
from orthosparse.mappings import Budget, Counts, Densities, Masks, Scores
from orthosparse.masks import ScoredMasks, draw, top_units
from orthosparse.randomness import derive, draw_seed
from orthosparse.structures import ENTRIES, TWO_OF_FOUR, two_of_four
from orthosparse.threads import workers


def random_masks(layers: Mapping[str, Layer], counts: Counts, generator: torch.Generator | None) -> Masks:
    """Return random masks with exactly these counts; a layer's mask depends on one seed and its own name.

    Args:
        layers: those to draw masks for, by name.
        counts: how many entries each has, in whole units of its structure.
        generator: gives the seed; None: one from the operating system.

    Raises:
        ValueError: a count that is not half of a layer whose structure is 2:4.
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
        given = f"{layer.name!r} {count / layer.numel:.6g}"
        raise ValueError(f"structure: '2:4' has density 0.5 in every layer; this distribution gives {given}")
    rows, cols = two_of_four(layer.shape[:2], generator)
    return (rows[:, None] == cols).reshape(layer.shape)


def bernoulli(layers: Mapping[str, Layer], densities: Densities, generator: torch.Generator | None) -> Masks:
    """Return masks whose every entry is an independent coin, so that their counts are random."""
    check_entries(layers)
    seed = draw_seed(generator)
    return _on_layer_devices(
        layers,
        {name: _coins(layer.shape, derive(seed, name, "mask")) < densities[name] for name, layer in layers.items()},
    )


def _coins(shape: torch.Size, generator: torch.Generator) -> torch.Tensor:
    return torch.rand(shape, generator=generator, dtype=torch.float32, device="cpu")


def check_entries(layers: Mapping[str, Layer]) -> None:
    """Raise unless the units of all layers are entries, which is all that the released code knows."""
    for name, layer in layers.items():
        if layer.structure != ENTRIES:
            found = f"{layer.structure!r} for {name!r}"
            raise ValueError(f"compat: 'paper-code' has entries alone; expected structure 'entries'; got {found}")


def top_scored(layers: Mapping[str, Layer], scores: Scores, budget: Budget, within: Masks | None = None) -> ScoredMasks:
    """Return the masks of the largest scores, over all layers together or, by a budget for each, layer by layer.

    Blocks are ranked by their mean score. The masks lie in those of `within`, if that is given.

    Args:
        layers: those that are scored, by name.
        scores: the larger the better, in the shapes of the layers' weights.
        budget: how many are kept, as `budget_of` says.

    Raises:
        ValueError: a layer's structure is 2:4, which is drawn.
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
    """Each mask in memory of its own on its layer's device; on the CPU where the layer has no storage yet."""
    places = {name: layer.parameter().device for name, layer in layers.items()}
    shared = {name for name, mask in masks.items() if mask.untyped_storage().nbytes() > mask.numel()}
    return {
        name: mask.to("cpu" if places[name].type == "meta" else places[name], copy=name in shared)
        for name, mask in masks.items()
    }
