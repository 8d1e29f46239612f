"""The digits, and the four starts of one deep tanh network: dense orthogonal, and the same weights made sparse."""

import copy
import math
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

import orthosparse
from orthosparse import isometry
from orthosparse.lab.data import Dataset, Split, load
from orthosparse.lab.models import build, dense_init
from orthosparse.lab.seeds import generators
from orthosparse.randomness import derive

STARTS = ("dense", "base", "ai", "eoi")


@dataclass(frozen=True)
class Shape:
    """The network and how sparse it is.

    Attributes:
        ai_iterations: of AI's descent; the paper's 1000-layer networks take 1000.
    """

    depth: int = 100
    width: int = 64
    density: float = 0.125
    ai_iterations: int = 1000

    def __post_init__(self) -> None:
        if not 0 <= self.density <= 1:
            raise ValueError(f"density: expected a number in [0, 1]; got {self.density!r}")


def build_starts(shape: Shape, in_shape: tuple[int, int, int], classes: int, seed: int) -> dict[str, nn.Module]:
    """Return the networks by the name of their start, all at tanh's critical point.

    Base and AI live on the same ERK masks; EOI keeps their counts, at positions of its own. AI, which takes longest, is
    drawn last, when the others have accepted the density.
    """
    point = isometry.critical_point("tanh")
    draw = generators(seed)
    dense = build(
        "mlp", classes=classes, in_shape=in_shape, activation="tanh", depth=shape.depth, width=shape.width,
        generator=draw.init,
    )  # fmt: skip
    dense_init(dense, gain=point.sigma_w, bias_std=point.sigma_b, generator=draw.init)
    starts = {"dense": dense}
    for scheme in ("base", "eoi", "ai"):
        starts[scheme] = copy.deepcopy(dense)
        own: dict[str, Any] = {"iterations": shape.ai_iterations} if scheme == "ai" else {}
        orthosparse.sparsify(
            starts[scheme],
            shape.density,
            scheme=scheme,
            gain=point.sigma_w,
            bias_std=point.sigma_b,
            generator=derive(draw.mask.initial_seed(), "start"),  # the same for all: one set of masks
            **own,
        )
    return {name: starts[name] for name in STARTS}


def density_of(network: nn.Module) -> float:
    """Return the fraction of the network's weights that are active; 1 for one without masks."""
    masks = orthosparse.masks_of(network)
    layers = orthosparse.find_layers(network)
    active = sum(int(masks[name].sum()) if name in masks else layer.numel for name, layer in layers.items())
    return active / sum(layer.numel for layer in layers.values())


def scaled_digits() -> Dataset:
    """Return the digits, all 1437 training samples, times sqrt(q) / sigma_w of tanh's critical point.

    Orthogonal weights times sigma_w then give the first layer pre-activations of variance q, which every layer keeps:
    the singular values of a dense orthogonal start are near 1.
    """
    point = isometry.critical_point("tanh")
    data, factor = load("digits", validation=False), math.sqrt(point.q) / point.sigma_w
    return replace(data, train=_scaled(data.train, factor), test=_scaled(data.test, factor))


def _scaled(split: Split, factor: float) -> Split:
    wide = tuple(std / factor for std in split.normalisation.std)
    return replace(split, normalisation=replace(split.normalisation, std=wide))
