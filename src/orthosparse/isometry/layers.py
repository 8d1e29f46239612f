"""How orthogonal each layer of a model is, and its own singular values, as the linear map that it applies."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast, overload

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from orthosparse import orthogonality
from orthosparse.checks import check_model, describe, named_on_error
from orthosparse.isometry._functional import check_input, layers_of, untraced
from orthosparse.isometry._spectrum import Spectrum, spectrum_of
from orthosparse.layers import Layer, unwrapped
from orthosparse.strides import dilated
from orthosparse.substitution import frozen_state, substituted
from orthosparse.tables import html_table


@dataclass(frozen=True)
class LayerScore:
    """The orthogonality of one layer.

    Attributes:
        score: ||A^T A - I||_F on the smaller side of A = weight / gain, in float64. Several matrices (groups, fused
            blocks, gates) count as the blocks of one.
        spatial: size of the signal that a convolution was measured on; None for a matrix, or if the score holds for any
            signal that is large enough.
        note: what the score leaves out; empty if the layer applies exactly the map that was measured.
    """

    score: float
    spatial: tuple[int, ...] | None = None
    note: str = ""

    def __float__(self) -> float:
        return self.score

    def cells(self) -> dict[str, str]:
        """Return its row in a table, by column."""
        sides = "" if self.spatial is None else "x".join(map(str, self.spatial))
        return {"orthogonality": f"{self.score:.2e}", "signal": sides, "note": self.note}


class _ByLayer(dict[str, Any]):
    """The results of every layer, by name; a notebook shows them as a table."""

    def _repr_html_(self) -> str:
        lines = [{"layer": name, **entry.cells()} for name, entry in self.items()]
        return html_table(list(lines[0]) if lines else ["layer"], [list(line.values()) for line in lines])


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

    A convolution is measured as the linear map that it applies with circular padding, frequency by frequency. This is
    exact for layers with circular padding; for others, the `note` of the score says what differs. If the kernel is a
    matrix at its centre, or in the window of its stride, the score is that of the matrix for any padding.

    Args:
        weight_or_model: a matrix, the kernel of a convolution, or a model.
        x: an input of the model. Convolutions are then measured at the size of the signal that they get, the last one
            if they run several times. Without it, the score holds for all signals with sides of at least 2 k - 1, where
            k is the side of the kernel.
        layers: which layers of the model; by default, all that `find_layers` finds.
        gain: factor of the orthogonal weights, which the weights are divided by.
        options: for a single weight: `groups`, `transposed`, `spatial` (the size of the signal), `stride`, and the
            `dtype` to compute in.

    Example:
        >>> orthogonality_score(torch.eye(2, 3))
        0.0
        >>> orthogonality_score(nn.Sequential(nn.Linear(2, 2, bias=False)))["0"].note
        ''
    """
    if not isinstance(weight_or_model, nn.Module | Tensor):
        raise TypeError(f"weight_or_model: expected a tensor or a module; got {describe(weight_or_model)}")
    if isinstance(weight_or_model, Tensor):
        return orthogonality.orthogonality_score(weight_or_model, gain=gain, **options)
    if options:
        raise TypeError(f"{', '.join(options)}: for a single weight only; for a model they are read from its layers")
    chosen = layers_of(check_model(weight_or_model), layers)
    sizes = {} if x is None else _signal_sizes(weight_or_model, x, chosen)
    with substituted(weight_or_model, frozen_state(weight_or_model)):  # spectral norm iterates when its weight is read
        return _ByLayer({name: _score(layer, sizes.get(name), gain) for name, layer in chosen.items()})


def layer_singular_values(
    model: nn.Module, x: Tensor | None = None, *, layers: Mapping[str, Layer] | None = None
) -> dict[str, Spectrum]:
    """Return the singular values of the map that each layer's weight applies, by name; ``.values`` is [1, number].

    The convolutions of `model` are measured as in `orthogonality_score`: with circular padding, at the size of the
    signal that they get from `x`, or on sides of 2 k - 1 without it.

    Args:
        layers: which layers; by default, all that `find_layers` finds.

    Example:
        >>> layer_singular_values(nn.Sequential(nn.Conv2d(2, 2, 3)), torch.ones(1, 2, 4, 4))["0"].values.shape
        torch.Size([1, 32])
    """
    chosen = layers_of(check_model(model), layers)
    sizes = {} if x is None else _signal_sizes(model, x, chosen)
    with substituted(model, frozen_state(model)):
        return _ByLayer({name: _spectrum(layer, sizes.get(name)) for name, layer in chosen.items()})


def _score(layer: Layer, spatial: tuple[int, ...] | None, gain: float) -> LayerScore:
    measured = _measured(layer, _enough(layer, _whole_signal(layer, spatial)))
    scores = [orthogonality.orthogonality_score(kernel, gain=gain, **own) for kernel, own in measured]
    return LayerScore(math.hypot(*scores), spatial, _note(layer, spatial))


def _spectrum(layer: Layer, spatial: tuple[int, ...] | None) -> Spectrum:
    size = _whole_signal(layer, spatial)
    measured = _measured(layer, size if _divides(layer, size) else None)
    parts = [orthogonality.singular_values_of(kernel, **own) for kernel, own in measured]
    values = torch.cat([part.flatten() for part in parts])
    return spectrum_of(values.sort(descending=True).values.unsqueeze(0), dtype=layer.weight().dtype)


def _measured(layer: Layer, spatial: tuple[int, ...] | None) -> Iterator[tuple[Tensor, dict[str, Any]]]:
    """Yield the kernels of a layer with their dilation, and the options of the measurement: groups, stride, spatial."""
    own: dict[str, Any] = {"spatial": spatial, "stride": layer.geometry["stride"]} if layer.kernel else {}
    for kernels in layer.kernels(layer.weight()):
        yield dilated(kernels.flatten(0, 1), layer.geometry["dilation"]), {"groups": len(kernels), **own}


def _whole_signal(layer: Layer, spatial: tuple[int, ...] | None) -> tuple[int, ...] | None:
    """Return the spatial sizes of the larger signal: the input, or the output of a transposed convolution."""
    if spatial is None or not layer.transposed:
        return spatial
    return tuple(n * step for n, step in zip(spatial, layer.geometry["stride"], strict=True))


def _enough(layer: Layer, spatial: tuple[int, ...] | None) -> tuple[int, ...] | None:
    """Return None if the size of the signal does not matter, or the stride does not divide it; else the size."""
    if spatial is None or not _divides(layer, spatial):
        return None
    sides = zip(spatial, _reach(layer), layer.geometry["stride"], strict=True)
    return None if all(n // step >= 2 * math.ceil(k / step) - 1 for n, k, step in sides) else spatial


def _divides(layer: Layer, spatial: tuple[int, ...] | None) -> bool:
    """Whether the stride divides the sides of the signal."""
    return spatial is None or not any(n % step for n, step in zip(spatial, layer.geometry["stride"], strict=True))


def _reach(layer: Layer) -> list[int]:
    """Return the sides of the kernel with its dilation."""
    return [gap * (side - 1) + 1 for gap, side in zip(layer.geometry["dilation"], layer.kernel, strict=True)]


def _note(layer: Layer, spatial: tuple[int, ...] | None) -> str:
    """Say how a convolution differs from the circular map that is measured; empty if it does not."""
    module = layer.module
    if not isinstance(module, _ConvNd):
        return ""
    notes = []
    if not _divides(layer, _whole_signal(layer, spatial)):
        notes.append(f"stride {_listed(module.stride)} does not divide the signal: scored as if it did")
    if not _keeps_size(layer):
        notes.append(f"padding {_listed(module.padding)}: scored as one that keeps {_kept(layer)}")
    elif module.padding_mode != "circular" and not _in_window(layer):
        notes.append(f"{module.padding_mode} padding: scored as circular, which differs at the border")
    return "; ".join(notes)


def _kept(layer: Layer) -> str:
    return "every position of the stride" if layer.strided else "the signal's size"


def _keeps_size(layer: Layer) -> bool:
    """Whether the output of a signal has exactly its size divided by the stride (times it, if transposed)."""
    stride, padding = layer.geometry["stride"], layer.geometry["padding"]
    if layer.module.padding == "same":
        return True
    if layer.transposed:  # (n - 1) s - 2 p + k + o outputs for n inputs: n s where the last three and -s add up to 0
        sides = zip(_reach(layer), stride, padding, cast(_ConvNd, layer.module).output_padding, strict=True)
        return all(k - step - 2 * pad + more == 0 for k, step, pad, more in sides)
    # floor((n + 2 p - k) / s) + 1 outputs: n / s of them for -s <= 2 p - k < 0
    axes = zip(_reach(layer), stride, padding, strict=True)
    return all(k - step <= 2 * pad < k for k, step, pad in axes)


def _in_window(layer: Layer) -> bool:
    """Whether every non-zero tap reads a pixel of its output's own window, so that no padding is read."""
    inside = torch.ones((), dtype=torch.bool, device="cpu")
    geometry = layer.geometry
    for side, step, pad, gap in zip(
        layer.kernel, geometry["stride"], geometry["padding"], geometry["dilation"], strict=True
    ):
        offsets = gap * torch.arange(side, device="cpu") - pad
        inside = inside.unsqueeze(-1) & (offsets >= 0) & (offsets < step)
    live = layer.weight().flatten(2).ne(0).any(0).any(0).cpu()
    return not bool((live & ~inside.flatten()).any())


def _listed(sides: Sequence[int] | str) -> str:
    return sides if isinstance(sides, str) else "x".join(map(str, sides))


def _signal_sizes(model: nn.Module, x: Tensor, layers: Mapping[str, Layer]) -> dict[str, tuple[int, ...]]:
    """Return the spatial sizes of the signal that each convolution gets in a forward pass on `x`, if it runs."""
    check_input(x)
    model = unwrapped(model)
    names: dict[nn.Module, str] = {
        layer.module: name for name, layer in layers.items() if isinstance(layer.module, _ConvNd)
    }
    sizes: dict[str, tuple[int, ...]] = {}

    def note(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        name, signal = names[module], args[0] if args else kwargs["input"]
        sizes[name] = tuple(signal.shape[-len(layers[name].kernel) :])

    hooks = [module.register_forward_pre_hook(note, with_kwargs=True) for module in names]
    try:
        with untraced(model, x.device), torch.no_grad(), substituted(model, frozen_state(model)), named_on_error("x"):
            model(x.detach().clone())
    finally:
        for handle in hooks:
            handle.remove()
    return sizes
