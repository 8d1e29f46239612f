"""SAO: exactly orthogonal weights on regular masks, whole kernels kept (Esguerra et al. 2023; the paper's appendix).

Under ReLU an orthogonal matrix S of half the size is doubled to W = [[S, -S], [-S, S]]: where the input is
(relu(u), relu(-u)), the output before the activation is (S u, -S u), so that the network stays an isometry on u.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import torch
from torch import nn

from orthosparse.aliases import Masks
from orthosparse.distributed import write_
from orthosparse.layers import Layer, find_layers
from orthosparse.masks import counts_of
from orthosparse.ramanujan import degrees_of, sample
from orthosparse.randomness import derive, draw_seed
from orthosparse.registry import lookup
from orthosparse.schemes._fill import check_scales, fill_biases, match_layers
from orthosparse.strides import phases_of
from orthosparse.structures import ENTRIES

_DOUBLED = {"linear": False, "tanh": False, "relu": True}
_DEGREES = ("exact", "nearest")


@dataclass(frozen=True)
class _Plan:
    """One matrix of a layer: the shape and degree of S, and how many copies of S are below and beside each other."""

    shape: tuple[int, int]
    degree: int
    below: int
    beside: int

    def draw(self, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        values, mask = sample(self.shape, self.degree, generator=generator)
        signs = values.new_ones(self.below, self.beside)
        signs[1:] *= -1
        signs[:, 1:] *= -1
        return torch.kron(signs, values), mask.repeat(self.below, self.beside)


def sao(
    model: nn.Module,
    masks: Masks,
    *,
    layers: Mapping[str, Layer] | None = None,
    gain: float = 1.0,
    bias_std: float = 0.0,
    generator: torch.Generator | None = None,
    activation: str = "linear",
    degree: int | str = "exact",
) -> Masks:
    """Fill each matrix with an orthogonal one on a regular mask of the same density as its mask.

    Only the density of a given mask matters, not its positions. A convolution has its matrix at the centre of the
    kernel, and its mask keeps each kernel whole or not at all. A full mask gives a dense matrix, uniform among the
    orthogonal ones. A shape allows the densities that `ramanujan.degrees_of` lists, divided by its long side: for a
    square matrix, all divisors of the width. The distribution ``dense_ends`` gives the densities of SAO's own networks.

    Args:
        activation: "relu" uses W = [[S, -S], [-S, S]] ([S; -S] in the model's first layer, [S, -S] in its last). S is
            then orthogonal, W is not. "linear" and "tanh" use S itself.
        degree: "exact" takes the density of each mask, and raises an error if the shape does not allow it; "nearest"
            takes the nearest density that it allows; a number is the degree of every layer whose mask is not full.

    Raises:
        ValueError: a shape does not allow its density (the message names the nearest ones that it allows), or the
            structure of a layer is not entries.

    Example:
        >>> model = nn.Linear(8, 8)
        >>> mask = sao(model, {"weight": torch.arange(64).view(8, 8) < 16})["weight"]
        >>> mask.sum(0).tolist(), mask.sum(1).tolist()
        ([2, 2, 2, 2, 2, 2, 2, 2], [2, 2, 2, 2, 2, 2, 2, 2])
    """
    layers, seed = match_layers(model, masks, layers), draw_seed(generator)
    for name, layer in layers.items():
        if layer.structure != ENTRIES:
            raise ValueError(
                f"structure: sao has regular masks of entries; expected 'entries', got {layer.structure!r} for {name!r}"
            )
    gain, bias_std = check_scales(layers, gain, bias_std)
    doubled = lookup(_DOUBLED, activation, "activation")
    names = [*find_layers(model)] if doubled else []
    ends = (names[0], names[-1]) if names else None
    counts = counts_of(masks)
    plans = {name: _planned(layer, Fraction(counts[name], layer.numel), degree, ends) for name, layer in layers.items()}
    return {name: _filled(layer, plans[name], gain, bias_std, seed) for name, layer in layers.items()}


def _planned(layer: Layer, density: Fraction, degree: int | str, ends: tuple[str, str] | None) -> list[_Plan]:
    """Return one plan for each of the layer's matrices."""
    below = 1 if ends is None or layer.name == ends[1] else 2
    beside = 1 if ends is None or layer.name == ends[0] else 2
    plans = []
    for out, into in layer.shapes:
        if out % below or into % beside:
            raise ValueError(
                f"masks: {layer.name!r}: the doubling for ReLU needs even sides; this matrix has {out} x {into}"
            )
        half = out // below, into // beside
        plans.append(_Plan(half, _degree(layer.name, half, density, degree, max(out, into)), below, beside))
    return plans


def _degree(name: str, shape: tuple[int, int], density: Fraction, degree: int | str, width: int) -> int:
    """Return the degree of S."""
    if isinstance(degree, bool) or not isinstance(degree, int | str):
        raise TypeError(f"degree: expected an integer or one of {', '.join(_DEGREES)}; got {degree!r}")
    if isinstance(degree, int):
        density = density if density == 1 else Fraction(degree, width)
    elif degree not in _DEGREES:
        raise ValueError(f"degree: expected an integer or one of {', '.join(_DEGREES)}; got {degree!r}")
    allowed, wanted = degrees_of(shape), density * max(shape)
    if degree == "nearest":
        return min(allowed, key=lambda each: abs(each - wanted))
    if wanted not in allowed:
        raise ValueError(f"masks: {name!r}: {_refusal(shape, wanted, allowed)}")
    return int(wanted)


def _refusal(shape: tuple[int, int], wanted: Fraction, allowed: list[int]) -> str:
    """Say which divisibility is violated, and what the nearest densities are that work."""
    short, long = sorted(shape)
    near = [*[each for each in allowed if each < wanted][-1:], *[each for each in allowed if each > wanted][:1]]
    return (
        f"SAO needs a degree that divides {long}, the long side of {shape[0]} x {shape[1]}, such that "
        f"{short} * degree / {long} is an integer; density {float(wanted / long):.6g} is degree {float(wanted):.6g}; "
        f"the nearest densities that work are {' and '.join(f'{each / long:.6g} (degree {each})' for each in near)}"
    )


def _filled(layer: Layer, plans: list[_Plan], gain: float, bias_std: float, seed: int) -> torch.Tensor:
    """Fill the layer as planned and return its mask."""
    weight = torch.zeros(layer.shape, dtype=layer.parameter().dtype, device="cpu")
    mask = torch.zeros_like(weight, dtype=torch.bool)
    ((_, center),) = phases_of(layer.kernel)
    views = zip(layer.views(weight), layer.views(mask), plans, strict=True)
    for index, (values, active, plan) in enumerate(views):
        drawn, kept = plan.draw(derive(seed, layer.name, index))
        values[..., center] = (drawn * gain).to(values.dtype).view(values.shape[:3])
        active.copy_(kept.view(*active.shape[:3], 1).expand_as(active))
    write_(layer.parameter(), weight)
    fill_biases(layer, bias_std, seed)
    return mask
