"""EOI: exactly orthogonal sparse weights, and the masks they live on (the paper's section 4.2)."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import nn

from orthosparse.aliases import Masks
from orthosparse.checks import check_density
from orthosparse.counts import TENSOR_FLOORS, apportion, raise_to_floors
from orthosparse.distributed import zero_off_
from orthosparse.givens.task import make_task
from orthosparse.hardware import kernel_threads
from orthosparse.init import sparse_delta_orthogonal_, sparse_orthogonal_
from orthosparse.init.delta import TAPS
from orthosparse.init.matrices import check_rotations
from orthosparse.layers import Layer
from orthosparse.masks import counts_of
from orthosparse.randomness import derive, draw_seed
from orthosparse.registry import lookup
from orthosparse.schemes._fill import check_scales, fill_biases, full_weight, match_layers
from orthosparse.schemes._live import fill_live_
from orthosparse.strides import phases_of
from orthosparse.structures import ENTRIES

# The tap of grouped convolutions.
_DEPTHWISE = {"keep": None, "center": "center", "shift": "random", "paper-code": "center"}
STRIDED = {"tile": "a window of taps that tiles the image", "delta": "one tap, as in the paper"}


def eoi(
    model: nn.Module,
    masks: Masks,
    *,
    layers: Mapping[str, Layer] | None = None,
    gain: float = 1.0,
    bias_std: float = 0.0,
    generator: torch.Generator | None = None,
    align: str = "none",
    core: float | None = None,
    center_density: float | str | None = None,
    tap: str | None = None,
    stop: str = "exact",
    angle: float | None = None,
    start: str = "identity",
    depthwise: str = "keep",
    strided: str = "tile",
    floor: str = "partial",
    consume: bool = False,
) -> Masks:
    """Fill each matrix with a sparse orthogonal one that has as many active entries as its mask.

    Only the count of a given mask matters, not its positions, unless `align` says otherwise. A convolution has its
    matrix at one tap of the kernel; its other active entries are drawn uniformly and start at zero. Fused parts and
    groups are matrices of their own. They share the count of the layer in proportion to their sizes, but each gets the
    entries that it needs to be orthogonal. Layers whose structure is blocks get whole blocks (see
    `givens.sample_blocks`).

    Args:
        align: "none", as in the paper, ignores the positions of the mask. "mask" puts the weights on the given mask as
            far as orthogonality allows: it permutes rows and columns, and also chooses the taps, the entries that start
            at zero and the counts of parts and groups. "live" does the same for the rows and columns that the mask
            uses, and leaves the others empty: an isometry of the channels in use, for which no count is too small
            (convolutions with groups are aligned as with "mask"). `sparsify` uses "mask" by default if weights are
            scored.
        core: fraction of a layer's count that belongs to its orthogonal matrix, but never less than orthogonality
            needs; the other entries start at zero. By default, all entries of a matrix, and what `center_density` says
            for a convolution.
        center_density: density of the matrix in a convolution: a number, "density" for the density of the whole kernel
            (as in the paper's 1000-layer network), or None for the square root of that, as far as the count allows.
        tap: "center", "random" for a tap drawn for each input channel, or "mask" for the tap that the channel uses most
            in the mask. By default "mask" if weights are aligned, else "center".
        stop: see `givens.sample`, also for `angle` and `start`.
        depthwise: what to do with convolutions that have groups. "keep" multiplies their dense weights by the mask.
            "center" and "shift" make each group orthogonal, at the centre or at a tap for each input channel, which is
            random or (with `align`) the mask's. In a depthwise convolution each channel then has 1 or -1 at one tap.
            "paper-code" follows the paper's released code: one orthogonal matrix of all outputs x the inputs of one
            group, which leaves most channels of a depthwise convolution at zero.
        strided: what to do with convolutions of stride s. "tile" puts an orthogonal matrix of out x (in * s * s) on a
            window of s x s taps, so that the windows tile the image and every pixel is read. "delta", as in the paper,
            uses one tap for each channel and reads one of every s * s pixels. A kernel smaller than its stride skips
            pixels either way.
        floor: what to do if a count is too small for orthogonality: "partial" makes a partial isometry, "error" raises
            an error, "minimal" uses the smallest count that works, which is larger than asked for.
        consume: whether to write the new masks into `masks` itself, so that the memory of the given ones can be reused.

    Example:
        >>> model = nn.Linear(8, 8)
        >>> masks = eoi(model, {"weight": torch.rand(8, 8, generator=torch.Generator().manual_seed(0)) < 0.5})
        >>> torch.allclose(model.weight @ model.weight.T, torch.eye(8), atol=1e-6)
        True
    """
    layers, seed = match_layers(model, masks, layers), draw_seed(generator)
    gain, bias_std = check_scales(layers, gain, bias_std)
    aligned, grouped_tap = _check_taps(align, tap, depthwise)
    rotations: dict[str, Any] = {
        "stop": stop,
        "angle": angle,
        "start": start,
        "core": _check_core(core, center_density),
    }
    make_task((1, 1), stop=stop, angle=angle, start=start)  # raises for invalid options before any weight changes
    for structure in {layer.structure for layer in layers.values()}:
        check_rotations(structure, align=True if aligned else None, **rotations)
    options = {"gain": gain, "floor": floor, "center_density": _check_center_density(center_density), **rotations}
    counts = counts_of(masks)
    lookup(STRIDED, strided, "strided")
    rules = {"depthwise": depthwise, "strided": strided, "align": align}
    _check_floors({name: eoi_floor(layer, **rules) for name, layer in layers.items()}, counts, floor)
    layers = {name: _as_filled(layer, depthwise) for name, layer in layers.items()}
    result = masks if consume else dict(masks)
    for name, layer in layers.items():
        fill_biases(layer, bias_std, seed)
        if layer.groups > 1 and depthwise == "keep":
            zero_off_(layer.parameter(), result[name])
            continue
        goal = result[name] if aligned else None
        del result[name]
        own_tap = tap if layer.groups == 1 else grouped_tap
        result[name] = _fill(
            layer, counts[name], goal, seed, tap=own_tap, strided=strided, live=_is_live(layer, align), **options
        )
    return result


def eoi_floor(
    layer: Layer, *, depthwise: str = "keep", strided: str = "tile", align: str = "none", **others: Any
) -> int:
    """Return the fewest entries with which `eoi` makes a layer, or its live channels, orthogonal.

    It is 0 for a layer that `eoi` does not fill.
    """
    del others  # other options move entries, but need no more of them
    if (layer.groups > 1 and depthwise == "keep") or _is_live(_as_filled(layer, depthwise), align):
        return 0
    return sum(_floors(_as_filled(layer, depthwise), strided))


def _as_filled(layer: Layer, depthwise: str) -> Layer:
    """Return the layer; with "paper-code", as one matrix instead of one for each group."""
    if layer.groups == 1 or depthwise != "paper-code":
        return layer
    return replace(layer, groups=1, parts=(layer.shape[1 if layer.transposed else 0],))


def _is_live(layer: Layer, align: str) -> bool:
    """Return whether the channels that a mask leaves out stay empty."""
    return align == "live" and layer.groups == 1


def _filler(fill: Callable[..., torch.Tensor], live: bool) -> Callable[..., torch.Tensor]:
    return partial(fill_live_, fill=fill) if live else fill


def _draws(weight: torch.Tensor, seed: int, *names: Any) -> dict[str, Any]:
    return {"generator": derive(seed, *names), "threads": kernel_threads(weight.numel())}


def _floors(layer: Layer, strided: str) -> list[int]:
    """Return the fewest entries of each matrix of a layer: its shorter side, times the side of a block."""
    geometry = _geometry(layer, strided)
    columns = len(phases_of(layer.kernel, **geometry)) if geometry else 1
    # The phases of a stride are on the side that is stored second: outputs of a transposed convolution, else inputs.
    sides = [reversed(shape) if layer.transposed else shape for shape in layer.shapes]
    return [layer.block * min(first, second * columns) for first, second in sides]


def _geometry(layer: Layer, strided: str) -> dict[str, Any]:
    """Return the stride and its geometry for `init`; nothing if the stride is ignored."""
    return layer.geometry if layer.strided and strided == "tile" else {}


def _fill(
    layer: Layer,
    count: int,
    goal: torch.Tensor | None,
    seed: int,
    *,
    center_density: Any,
    tap: str | None,
    strided: str,
    live: bool,
    **options: Any,
) -> torch.Tensor:
    """Fill a layer and return its mask; `goal` is the mask to align it to."""
    if layer.kind != "conv" or layer.structure != ENTRIES:
        return _linear(layer, count, goal, seed, live=live, **options)
    options |= {"tap": tap, "center_density": count / layer.numel if center_density == "density" else center_density}
    fill = _kernel if len(layer.shapes) == layer.groups else _kernels
    return fill(layer, count, goal, seed, strided=strided, live=live, **options)


def _kernel(
    layer: Layer, count: int, goal: torch.Tensor | None, seed: int, *, strided: str, live: bool, **options: Any
) -> torch.Tensor:
    """Fill a convolution and return its mask."""
    with full_weight(layer.parameter()) as weight:
        return _filler(sparse_delta_orthogonal_, live)(
            weight,
            count=count,
            groups=layer.groups,
            transposed=layer.transposed,
            align=goal,
            **_draws(weight, seed, layer.name),
            **_geometry(layer, strided),
            **options,
        )


def _kernels(
    layer: Layer, count: int, goal: torch.Tensor | None, seed: int, *, strided: str, live: bool, **options: Any
) -> torch.Tensor:
    """Fill the fused convolutions of a weight and return its mask."""
    geometry = _geometry(layer, strided)
    transposed = layer.transposed and bool(geometry)
    with full_weight(layer.parameter()) as weight:
        values = torch.empty_like(weight, memory_format=torch.contiguous_format)
        mask = torch.empty_like(values, dtype=torch.bool)
        views = zip(layer.views(values), layer.views(mask), *_targets(layer, count, goal, strided, live), strict=True)
        for index, (view, active, share, align) in enumerate(views):
            kernel = view.flatten(0, 1).unflatten(-1, layer.kernel)  # a view, or a copy if rows alternate
            drawn = _filler(sparse_delta_orthogonal_, live)(
                _as_stored(kernel, transposed),
                count=share,
                align=None if align is None else _as_stored(align.reshape(kernel.shape), transposed),
                transposed=transposed,
                **geometry,
                **_draws(kernel, seed, layer.name, index),
                **options,
            )
            active.copy_(_as_stored(drawn, transposed).reshape(active.shape))
            if layer.repeats > 1:
                view.copy_(kernel.reshape(view.shape))
        weight.copy_(values)
    return mask


def _as_stored(kernel: torch.Tensor, transposed: bool) -> torch.Tensor:
    return kernel.transpose(0, 1) if transposed else kernel


def _linear(
    layer: Layer, count: int, goal: torch.Tensor | None, seed: int, *, live: bool, **options: Any
) -> torch.Tensor:
    """Fill the matrices of a weight, at one tap each, and return its mask."""
    with full_weight(layer.parameter()) as weight:
        mask = torch.empty_like(weight, dtype=torch.bool, memory_format=torch.contiguous_format)
        views = zip(layer.views(weight), layer.views(mask), *_targets(layer, count, goal, "delta", live), strict=True)
        for index, (view, active, share, align) in enumerate(views):
            matrix = view.flatten(0, 1)[..., 0]  # a view, or a copy if rows alternate
            drawn = _filler(sparse_orthogonal_, live)(
                matrix,
                count=share,
                structure=layer.structure,
                align=None if align is None else align.reshape(matrix.shape),
                **_draws(matrix, seed, layer.name, index),
                **options,
            )
            if len(layer.shapes) == 1:
                mask = (drawn.T if layer.transposed else drawn).reshape(layer.shape)
            else:
                active.copy_(drawn.reshape(active.shape))
            if layer.repeats > 1:
                view.copy_(matrix.reshape(view.shape))
    return mask


def _targets(
    layer: Layer, count: int, goal: torch.Tensor | None, strided: str, live: bool
) -> tuple[list[int], list[torch.Tensor] | list[None]]:
    """Return the count of each matrix, and the mask to align it to."""
    floors = [0] * len(layer.shapes) if live else _floors(layer, strided)
    if goal is None:
        return _shares(layer, count, floors, None), [None] * len(layer.shapes)
    goals = layer.views(goal.contiguous())
    return _shares(layer, count, floors, [int(each.sum()) for each in goals]), goals


def _shares(layer: Layer, count: int, floors: list[int], wanted: list[int] | None) -> list[int]:
    """Split the count over the fused matrices, in proportion to their sizes, or as in their masks.

    Each gets at least its floor if the count allows it.
    """
    names, unit = [str(index) for index in range(len(layer.shapes))], layer.unit
    if wanted is None:
        sizes = {
            name: out * inputs * layer.taps // unit for name, (out, inputs) in zip(names, layer.shapes, strict=True)
        }
        shares = apportion({name: float(size) for name, size in sizes.items()}, count // unit, sizes)
    else:
        shares = {name: each // unit for name, each in zip(names, wanted, strict=True)}
    if count >= sum(floors):
        shares = raise_to_floors(shares, {name: least // unit for name, least in zip(names, floors, strict=True)})
    return [unit * share for share in shares.values()]


def _check_taps(align: str, tap: str | None, depthwise: str) -> tuple[bool, str | None]:
    """Return whether to align, and the tap of grouped convolutions."""
    aligned = lookup({"none": False, "mask": True, "live": True}, align, "align")
    grouped = lookup(_DEPTHWISE, depthwise, "depthwise")
    if tap is not None:
        lookup(TAPS, tap, "tap")
    if tap == "mask" and not aligned:
        raise ValueError('tap: "mask" expects align="mask"; got align="none"')
    return aligned, "mask" if aligned and depthwise == "shift" else grouped


def _check_core(core: float | None, center_density: float | str | None) -> float | None:
    if core is None:
        return None
    if center_density is not None:
        raise ValueError(f"core: expected None beside center_density; got {core!r} and {center_density!r}")
    return check_density(core, "core")


def _check_center_density(center_density: float | str | None) -> float | str | None:
    if isinstance(center_density, str):
        lookup({"density": "that of the kernel"}, center_density, "center_density")
    elif center_density is not None:
        check_density(center_density, "center_density")
    return center_density


def _check_floors(floors: Mapping[str, int], counts: Mapping[str, int], floor: str) -> None:
    lookup(TENSOR_FLOORS, floor, "floor")
    below = [name for name, least in floors.items() if counts[name] < least]
    if below and floor == "error":
        named = ", ".join(f"{name!r} has {counts[name]} of {floors[name]}" for name in below)
        raise ValueError(f"masks: expected enough entries for orthogonality in every layer; {named}")
