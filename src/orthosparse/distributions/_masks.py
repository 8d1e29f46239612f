"""Masks on the device of their layers: of random entries, of independent coins, of the largest scores."""

from collections.abc import Mapping

import torch

from orthosparse.layers import Layer
from orthosparse.mappings import Counts, Densities, Masks, Scores
from orthosparse.masks import draw, top_k
from orthosparse.randomness import derive, draw_seed


def random_masks(layers: Mapping[str, Layer], counts: Counts, generator: torch.Generator | None) -> Masks:
    """Return random masks with exactly these counts; a layer's mask depends on one seed and its own name."""
    seed = draw_seed(generator)
    return _on_layer_devices(
        layers,
        {name: draw(layer.shape, counts[name], generator=derive(seed, name, "mask")) for name, layer in layers.items()},
    )


def bernoulli(layers: Mapping[str, Layer], densities: Densities, generator: torch.Generator | None) -> Masks:
    """Return masks whose every entry is an independent coin, so that their counts are random."""
    seed = draw_seed(generator)
    return _on_layer_devices(
        layers,
        {name: _coins(layer.shape, derive(seed, name, "mask")) < densities[name] for name, layer in layers.items()},
    )


def _coins(shape: torch.Size, generator: torch.Generator) -> torch.Tensor:
    return torch.rand(shape, generator=generator, dtype=torch.float32, device="cpu")


def top_scored(layers: Mapping[str, Layer], scores: Scores, count: int) -> Masks:
    """Return the masks of the `count` largest scores over all layers together, wherever the layers lie."""
    if len({score.device for score in scores.values()}) > 1:
        scores = {name: score.cpu() for name, score in scores.items()}
    return _on_layer_devices(layers, top_k(scores, count))


def _on_layer_devices(layers: Mapping[str, Layer], masks: Masks) -> Masks:
    """Each mask in memory of its own on its layer's device; on the CPU where the layer has no storage yet."""
    places = {name: layer.parameter().device for name, layer in layers.items()}
    return {
        name: mask.to("cpu" if places[name].type == "meta" else places[name], copy=True) for name, mask in masks.items()
    }
