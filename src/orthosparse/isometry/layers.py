"""How orthogonal each layer of a model is, and its own singular values, as the linear map that it applies."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from orthosparse import orthogonality
from orthosparse.isometry._by_layer import ByLayer
from orthosparse.isometry._functional import check_input, frozen_state, untraced
from orthosparse.isometry._spectrum import Spectrum, spectrum_of
from orthosparse.layers import Layer, find_layers, unwrapped
from orthosparse.substitution import substituted


@dataclass(frozen=True)
class LayerScore:
    """The orthogonality of one layer.

    Attributes:
        score: ||A^T A - I||_F on the smaller side of A = weight / gain, float64; several matrices (groups, fused
            blocks, gates) add up as blocks of one do.
        spatial: sides of the signal a convolution was measured on; None: of any that is large enough, or a matrix.
        note: what the score leaves out; empty where the layer applies exactly the map that was measured.
    """

    score: float
    spatial: tuple[int, ...] | None = None
    note: str = ""

    def __float__(self) -> float:
        return self.score

    def cells(self) -> dict[str, str]:
        """Return the columns of its line in a table."""
        sides = "" if self.spatial is None else "x".join(map(str, self.spatial))
        return {"orthogonality": f"{self.score:.2e}", "signal": sides, "note": self.note}


@overload
def orthogonality_score(weight_or_model: Tensor, x: None = None, **options: Any) -> float: ...


@overload
def orthogonality_score(
    weight_or_model: nn.Module,
    x: Tensor | None = None,
    *,
    layers: Mapping[str, Layer] | None = None,
    gain: float = 1.0,
) -> dict[str, LayerScore]: ...


def orthogonality_score(
    weight_or_model: Tensor | nn.Module,
    x: Tensor | None = None,
    *,
    layers: Mapping[str, Layer] | None = None,
    gain: float = 1.0,
    **options: Any,
) -> float | dict[str, LayerScore]:
    """Return ||A^T A - I||_F on the smaller side: of one weight, or of every layer of a model by name.

    A convolution is measured as the map it applies with circular padding and stride 1, one Fourier coefficient after
    the other. That is exact for such layers; for others the score's `note` says what differs. A kernel that is a
    matrix at its centre has the score of that matrix whatever the padding.

    Args:
        x: a model's input; convolutions are then measured at the size of the signal they see, the last one where they
            run several times. Without it the score is the one of all signals with sides of at least 2 k - 1, k the
            kernel's.
        layers: which layers of the model; by default all that `find_layers` finds.
        gain: the weights are meant to be orthogonal times this.
        options: for one weight, what `orthogonality.orthogonality_score` takes: groups, transposed, spatial.

    Example:
        >>> orthogonality_score(torch.eye(2, 3))
        0.0
        >>> orthogonality_score(nn.Sequential(nn.Linear(2, 2, bias=False)))["0"].note
        ''
    """
    if not isinstance(weight_or_model, nn.Module):
        return orthogonality.orthogonality_score(weight_or_model, gain=gain, **options)
    if options:
        raise TypeError(f"{', '.join(options)}: of one weight only; a model knows them of its layers")
    found = find_layers(weight_or_model) if layers is None else layers
    sizes = {} if x is None else _signal_sizes(weight_or_model, x, found)
    return ByLayer({name: _score(layer, sizes.get(name), gain) for name, layer in found.items()})


def layer_singular_values(
    model: nn.Module, x: Tensor | None = None, *, layers: Mapping[str, Layer] | None = None
) -> dict[str, Spectrum]:
    """Return the singular values of the map that each layer's weight applies, by name; ``.values`` is [1, all of them].

    Convolutions as in `orthogonality_score`: circular padding, stride 1, at the size of the signal that `x` gives them,
    or on sides of 2 k - 1.

    Example:
        >>> layer_singular_values(nn.Sequential(nn.Conv2d(2, 2, 3)), torch.ones(1, 2, 4, 4))["0"].values.shape
        torch.Size([1, 32])
    """
    found = find_layers(model) if layers is None else layers
    sizes = {} if x is None else _signal_sizes(model, x, found)
    return ByLayer({name: _spectrum(layer, sizes.get(name)) for name, layer in found.items()})


def _score(layer: Layer, spatial: tuple[int, ...] | None, gain: float) -> LayerScore:
    if layer.kind == "conv":
        kernels, groups = _kernels(layer)
        # From sides of 2 k - 1 on the size does not matter, and that many frequencies are the fewest.
        sides = kernels[0].shape[2:]
        large = spatial is not None and all(n >= 2 * k - 1 for n, k in zip(spatial, sides, strict=True))
        size = None if large else spatial
        scores = [
            orthogonality.orthogonality_score(kernel, groups=groups, spatial=size, gain=gain) for kernel in kernels
        ]
    else:
        scores = [orthogonality.orthogonality_score(part, gain=gain) for part in _matrices(layer)]
    return LayerScore(math.hypot(*scores), spatial, _note(layer))


def _spectrum(layer: Layer, spatial: tuple[int, ...] | None) -> Spectrum:
    if layer.kind == "conv":
        kernels, groups = _kernels(layer)
        parts = [orthogonality.singular_values_of(kernel, groups=groups, spatial=spatial) for kernel in kernels]
    else:
        parts = [orthogonality.singular_values_of(part) for part in _matrices(layer)]
    values = torch.cat([part.flatten() for part in parts])
    return spectrum_of(values.sort(descending=True).values.unsqueeze(0), dtype=layer.weight().dtype)


def _matrices(layer: Layer) -> list[Tensor]:
    """The matrices of a layer without taps, one by one."""
    return [matrix for stack in layer.matrices(layer.weight().contiguous()) for matrix in stack[..., 0]]


def _kernels(layer: Layer) -> tuple[list[Tensor], int]:
    """The kernels that a convolution is measured by, and the groups of each: its own one, or one for each block."""
    if len(layer.parts) == 1:
        return [_kernel(layer, layer.weight())], layer.groups
    stacks = layer.matrices(layer.weight().contiguous())
    return [_kernel(layer, part.unflatten(2, layer.kernel)) for stack in stacks for part in stack], 1


def _kernel(layer: Layer, weight: Tensor) -> Tensor:
    """The kernel as it lies on the signal: with the zeros that dilation puts between its taps."""
    steps = layer.module.dilation if isinstance(layer.module, _ConvNd) else ()
    if all(step == 1 for step in steps):
        return weight
    sides = [step * (side - 1) + 1 for step, side in zip(steps, weight.shape[2:], strict=True)]
    spread = weight.new_zeros(*weight.shape[:2], *sides)
    spread[(slice(None), slice(None), *(slice(None, None, step) for step in steps))] = weight
    return spread


def _note(layer: Layer) -> str:
    """What keeps a convolution from being the circular, stride-1 map that is measured."""
    module = layer.module
    if not isinstance(module, _ConvNd):
        return ""
    notes = []
    if any(step != 1 for step in module.stride):
        notes.append(f"stride {_listed(module.stride)}: scored at stride 1; the layer keeps a part of those outputs")
    kernel = _kernel(layer, layer.weight())
    reach = [side - 1 for side in kernel.shape[2:]]
    if module.padding == "valid" or (module.padding != "same" and [2 * pad for pad in _ints(module.padding)] != reach):
        notes.append(f"padding {_listed(module.padding)}: scored as one that keeps the signal's size")
    elif module.padding_mode != "circular" and not _is_central(kernel):
        notes.append(f"{module.padding_mode} padding: scored as circular, which differs at the border")
    return "; ".join(notes)


def _ints(sides: Any) -> list[int]:
    return [int(side) for side in sides]


def _is_central(kernel: Tensor) -> bool:
    """Whether all that is not zero stands at the centre of an odd kernel, so that no value of the padding is read."""
    if any(side % 2 == 0 for side in kernel.shape[2:]):
        return False
    live = kernel.flatten(2).ne(0).any(0).any(0)
    return int(live.sum()) == int(live[len(live) // 2])


def _listed(sides: Sequence[int] | str) -> str:
    return sides if isinstance(sides, str) else "x".join(map(str, sides))


def _signal_sizes(model: nn.Module, x: Tensor, layers: Mapping[str, Layer]) -> dict[str, tuple[int, ...]]:
    """The sides of the signal that each convolution sees in a forward pass on `x`; without those that do not run."""
    check_input(x)
    model = unwrapped(model)
    sizes: dict[str, tuple[int, ...]] = {}
    hooks = []
    for name, layer in layers.items():
        if isinstance(layer.module, _ConvNd):
            sides = layer.parameter().dim() - 2

            def hook(module: nn.Module, args: tuple[Any, ...], name: str = name, sides: int = sides) -> None:
                del module
                sizes[name] = tuple(args[0].shape[-sides:])

            hooks.append(layer.module.register_forward_pre_hook(hook))
    try:
        with untraced(model, x.device), torch.no_grad(), substituted(model, frozen_state(model)):
            model(x.detach().clone())
    finally:
        for handle in hooks:
            handle.remove()
    return sizes
