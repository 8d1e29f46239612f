"""sparsify: make a model exactly sparse and orthogonal in one call, and report the result."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from orthosparse import masking
from orthosparse.aliases import Density, DistributionName, FloorName, Masks, SchemeName, StructureName
from orthosparse.checks import check_at_least, check_model, check_parameter, check_progress
from orthosparse.counts import FLOORS, check_densities, count_of, densities_by_layer
from orthosparse.distributed import (
    Group,
    broadcast_masks,
    broadcast_seed,
    check_group,
    check_same_model,
    full_tensor,
    raised_on_every_rank,
)
from orthosparse.distributions import DISTRIBUTIONS
from orthosparse.floors import meet_floors
from orthosparse.hardware import workers
from orthosparse.layers import Layer, Selector, Split, find_layers, leaf, left_dense, summarize, unwrapped
from orthosparse.masking.transactions import Drafts, can_draft, undone_on_error
from orthosparse.masks import ScoredMasks, counts_of, overlap
from orthosparse.members import Member, label, member_of, route
from orthosparse.progress import Progress
from orthosparse.randomness import derive, draw_seed
from orthosparse.registry import lookup
from orthosparse.report import Report, Row, row_of
from orthosparse.schemes import SCHEME_FLOORS, SCHEMES
from orthosparse.structures import ENTRIES


def sparsify(
    model: nn.Module,
    density: Density | None = None,
    *,
    distribution: DistributionName | str | Callable[..., Masks] = "erk",
    scheme: SchemeName | str | Callable[..., Masks] = "eoi",
    batch: Any = None,
    loss: Callable[..., torch.Tensor] | None = None,
    include: Sequence[Selector] | Selector | None = None,
    exclude: Sequence[Selector] | Selector = (),
    split: Split | None = None,
    structure: StructureName | str = ENTRIES,
    gain: float = 1.0,
    bias_std: float = 0.0,
    floor: FloorName | str = "raise",
    generator: torch.Generator | None = None,
    seed: int | None = None,
    group: Group = None,
    progress: Progress = False,
    **options: Any,
) -> Report:
    """Make `model` sparse: attach masks with exactly ``density * weights`` ones, and initialize the weights on them.

    The count is the nearest integer, halves up. There are two exceptions: `dense_ends` applies `density` to the inner
    layers and so keeps more, and masks of whole blocks may be off by up to half a block if no layer has single entries
    to make up the difference.

    This is an initialization: every scheme except ``base`` replaces the weights, even those of a trained model. `prune`
    keeps them. If the call raises, the model is unchanged.

    All random numbers come from one seed, which is in the report: ``seed=report.seed`` repeats the call on the same
    model. ``torch.manual_seed`` has no effect on it, but determines the weights that the model was built with: those
    that ``base`` keeps, ``ai`` starts from and ``scaled`` measures, and those that distributions score.

    Under torch.distributed, all ranks call this function with the same model, and end with the masks and weights of
    rank 0, whatever they were seeded with. If the arguments or the distribution raise an error on one rank, all ranks
    raise.

    Args:
        density: density of all layers together, or a mapping from layer names and globs to densities:
            ``{"blocks.*": 0.1, "head": 1.0}``. In a mapping the last match wins, so the widest globs come first; layers
            without a match stay dense and keep their weights. No layer takes entries from another one then, and the
            distribution only chooses which weights each layer keeps.
        distribution: decides how many weights each layer keeps: a name in DISTRIBUTIONS, or your own function with the
            same signature (see `orthosparse.distributions`).
        scheme: decides which weights these are, and their values: a name in SCHEMES, or your own function with the same
            signature (see `orthosparse.schemes`). If the function has an attribute ``floor``, it is called as
            ``floor(layer, **options)`` and returns how many entries a layer needs.
        batch: ``(x, y)``, or an iterable of such pairs, for distributions that need data.
        loss: ``(output, y) -> scalar``; cross-entropy by default.
        include: only these layers (see `find_layers`).
        exclude: all but these layers (see `find_layers`).
        split: which tensors hold several matrices, and how (see `find_layers`).
        structure: the units that are active or not: ``"entries"``; ``"block:64"`` for whole blocks of 64 x 64; or
            ``"2:4"`` for two of every aligned four, which needs density 0.5 and the distribution ``uniform``, ``er`` or
            ``erk``, all of which then give every layer this density.
        gain: factor of the orthogonal weights; ``base`` and ``scaled`` ignore it.
        bias_std: standard deviation of the biases. With 0, biases are set to zero (``base`` keeps them).
        floor: what to do if a layer gets fewer entries than it needs to be orthogonal: ``raise`` takes them from the
            other layers, ``minimal`` adds them to the total, ``partial`` keeps the count and makes a partial isometry,
            ``error`` raises an error.
        generator: the seed is drawn from it; by default, from the operating system.
        seed: the seed itself, for example ``report.seed``, instead of `generator`.
        group: the process group that holds this model; by default, all ranks. Each stage of a pipeline has its own.
        progress: True writes one line to stderr and updates it (for `ai`, `synflow` and `snip_iterative`); a function
            is called as ``progress(what, done, total)``.
        options: passed to the distribution or the scheme that has an argument of that name (``compat="paper-code"``,
            ``depthwise="shift"``, ``center_density=0.3``). With a distribution that scores weights, ``eoi`` gets
            ``align="mask"`` by default and puts its weights on the positions with the best scores. With random masks
            there is nothing to align to, and `align` has no effect.

    Raises:
        TypeError: an argument or a weight has the wrong type.
        ValueError: an argument is invalid, there is nothing to sparsify, or the model already has masks.

    Example:
        >>> model = nn.Sequential(nn.Linear(20, 40), nn.Tanh(), nn.Linear(40, 10))
        >>> report = sparsify(model, 0.25, generator=torch.Generator().manual_seed(0))
        >>> report.got, report.numel, report.rows[0].orthogonality < 1e-5
        (300, 1200, True)
    """
    check_group(group)
    with raised_on_every_rank(group):
        model = unwrapped(check_model(model))
        check_progress(progress)
        distribute, fill = member_of(DISTRIBUTIONS, distribution, "distribution"), member_of(SCHEMES, scheme, "scheme")
        scored_by, filled_by = route(options, [distribute, fill], inspect.signature(sparsify).parameters)
        lookup(FLOORS, floor, "floor")
        density = check_densities(density)
        layers = _layers(model, density, include=include, exclude=exclude, split=split, structure=structure)
        drawn = draw_seed(generator, seed)
    check_same_model(model, layers, group)
    seed = broadcast_seed(drawn, group)
    data = {"batch": batch, "loss": loss, "generator": derive(seed, "distribution")}
    with raised_on_every_rank(group):
        chosen = distribute(model, density, layers=layers, progress=progress, **data, **scored_by)
    chosen = broadcast_masks(chosen, group)
    if filled_by.get("align") in ("mask", "live") and not (isinstance(chosen, ScoredMasks) or distribute.is_own):
        filled_by["align"] = "none"  # random positions are nothing to align to
    elif isinstance(chosen, ScoredMasks) and not fill.is_own and "align" in fill.options:
        filled_by.setdefault("align", "mask")
    floors = {name: _floor(fill, layer, filled_by) for name, layer in layers.items()}
    asked, scored = counts_of(chosen), chosen if isinstance(chosen, ScoredMasks) else None
    masks = dict(chosen)
    if any(asked[name] < least for name, least in floors.items()):
        masks = dict(meet_floors(chosen, floors, floor, seed, layers, fixed=isinstance(density, Mapping)))
    del chosen  # each mask can be freed as soon as its layer has another one
    draw = partial(fill, model, gain=gain, bias_std=bias_std, progress=progress, **filled_by)
    measure = partial(_rows, asked=asked, floors=floors, scored=scored, structure=structure, gain=gain)
    total = sum(asked.values()) if structure == ENTRIES else _entries(density, layers)
    names = label(distribute, density, scored is not None), fill.name
    left, replaced = left_dense(model, layers), fill.name != "base"
    if _can_draft(fill, layers):
        rows = _drafted(model, masks, layers, draw, measure, seed)
    else:
        with _unchanged_on_error(model, layers):
            masks = draw(masks, layers=layers, consume=True, generator=derive(seed, "scheme"))
            masking.attach(model, masks, layers=layers, filled=not fill.is_own)
            masking.synchronize(model, group)
            rows = measure(masks, layers)
    return Report(tuple(rows), total, *names, gain, seed, left, structure, replaced)


def _entries(density: Density, layers: Mapping[str, Layer]) -> int:
    """Return the number of entries that a density asks for, before it is rounded to whole blocks."""
    if isinstance(density, Mapping):
        own = densities_by_layer(density, layers)
        return sum(count_of(own[name], layer.numel) for name, layer in layers.items())
    return count_of(density, sum(layer.numel for layer in layers.values()))


def _can_draft(scheme: Member, layers: Mapping[str, Layer]) -> bool:
    """Whether weights can be drawn layer by layer while the old ones are kept: in one process, in CPU memory."""
    alone = not (dist.is_available() and dist.is_initialized())
    by_layer = not scheme.is_own and scheme.takes("consume")
    return alone and by_layer and all(can_draft(layer.parameter()) for layer in layers.values())


def _drafted(
    model: nn.Module,
    masks: dict[str, torch.Tensor],
    layers: Mapping[str, Layer],
    draw: Callable[..., Masks],
    measure: Callable[[Masks, Mapping[str, Layer]], list[Row]],
    seed: int,
) -> list[Row]:
    """Draw and measure layer by layer, keep only the active entries, and change the model at the very end.

    This takes less memory than a copy of the old weights for undoing errors.
    """
    drafts = Drafts()

    def drawn(name: str) -> tuple[torch.Tensor, list[Row]]:
        layer = {name: layers[name]}
        with drafts.beside(layers[name].parameter()) as keep:
            given = {name: masks.pop(name)}
            mask = draw(given, layers=layer, consume=True, generator=derive(seed, "scheme"))[name]
            keep(mask)
            return mask, measure({name: mask}, layer)

    with _unchanged_on_error(model, layers, weights=False):
        with workers([layer.numel for layer in layers.values()]) as parallel_map:
            results = dict(zip(layers, parallel_map(drawn, layers), strict=True))
        masking.attach(model, {name: mask for name, (mask, _) in results.items()}, layers=layers, filled=True)
    drafts.write()
    return [row for _, rows in results.values() for row in rows]


def _rows(
    masks: Masks,
    layers: Mapping[str, Layer],
    *,
    asked: Mapping[str, int],
    floors: dict[str, int],
    scored: ScoredMasks | None,
    structure: str,
    gain: float,
) -> list[Row]:
    """Measure layers whose weights are zero outside these masks."""
    given = {name: scored[name] for name in masks} if scored else {}
    overlaps = overlap(given, masks) if scored else dict.fromkeys(masks)
    return [
        row_of(
            layer,
            full_tensor(layer.parameter()),  # zero off the mask
            masks[name],
            asked=asked[name],
            overlap=overlaps[name],
            gain=gain,
            structure=structure,
            floor=floors[name],
        )
        for name, layer in layers.items()
    ]


def _floor(scheme: Member, layer: Layer, options: Mapping[str, Any]) -> int:
    """Return the smallest number of entries that a scheme needs in a layer; a user's function may have a ``floor``."""
    least = getattr(scheme.function, "floor", None) if scheme.is_own else SCHEME_FLOORS.get(scheme.name)
    return 0 if least is None else check_at_least(least(layer, **options), 0, f"scheme: the floor of {layer.name!r}")


def _layers(model: nn.Module, density: Density, **which: Any) -> dict[str, Layer]:
    if masking.is_sparsified(model):
        raise ValueError(
            "model: expected one without masks; this one is sparsified already: use replace_masks, or bake it"
        )
    layers = find_layers(model, **which)
    if not layers:
        left = summarize(left_dense(model, {})) or "it has no matrices"
        raise ValueError(f"model: expected at least one layer to sparsify; found none (left dense: {left})")
    if isinstance(density, Mapping):
        layers = {name: layers[name] for name in densities_by_layer(density, layers)}
    for name, layer in layers.items():
        check_parameter(name, layer.parameter())
    masking.check_maskable(model, layers)
    return layers


@contextmanager
def _unchanged_on_error(model: nn.Module, layers: Mapping[str, Layer], *, weights: bool = True) -> Iterator[None]:
    """If the block raises, remove all masks and restore the biases, and with `weights` also the weights."""
    with undone_on_error(model) as saved:
        for layer in layers.values():
            for tensor in (layer.tensor,) * weights + layer.biases:
                saved.save(leaf(layer.module, tensor))
        yield
