"""The front door: one call makes a model exactly sparse, and orthogonal, and says what it did."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from orthosparse import masking
from orthosparse.checks import check_density, check_model, check_parameter
from orthosparse.choices import DistributionName, FloorName, SchemeName, StructureName
from orthosparse.counts import FLOORS, count_of
from orthosparse.distributed import (
    Group,
    broadcast_masks,
    broadcast_seed,
    check_group,
    check_same_model,
    raised_on_every_rank,
)
from orthosparse.distributions import DISTRIBUTIONS
from orthosparse.floors import floor_notes, meet_floors
from orthosparse.layers import Layer, Split, find_layers, left_dense, summarize, unwrapped
from orthosparse.mappings import Masks, ScoredMasks
from orthosparse.masks import counts_of, overlap
from orthosparse.parametrized import leaf
from orthosparse.randomness import derive, draw_seed
from orthosparse.registry import lookup
from orthosparse.report import Report, row_of, structure_note
from orthosparse.schemes import SCHEME_FLOORS, SCHEMES
from orthosparse.selection import Selector
from orthosparse.sharding import full_tensor
from orthosparse.structures import ENTRIES

# What every member of a family is handed; what else it takes is an option of its own.
_FAMILY = {"model", "density", "masks", "layers", "batch", "loss", "gain", "bias_std", "generator", "floor", "consume"}


def sparsify(
    model: nn.Module,
    density: float,
    *,
    distribution: DistributionName | str = "erk",
    scheme: SchemeName | str = "eoi",
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
    group: Group = None,
    **options: Any,
) -> Report:
    """Give `model` masks of exactly ``density * weights`` ones (the nearest integer, halves up), and weights on them.

    It is a start: every scheme but ``base`` replaces the weights, a trained model's too. `prune` keeps their values.
    (`dense_ends` reads `density` as that of the inner layers, and so keeps more; masks of blocks, where no layer has
    entries to take up the rest, miss it by half a block at most.)

    Under torch.distributed all ranks call with the same model, and end with rank 0's masks and weights, whatever they
    were seeded with. What is raised on one of them is raised on all.

    Args:
        distribution: how many weights each layer may keep, a name in DISTRIBUTIONS.
        scheme: which ones and with what values, a name in SCHEMES.
        batch: ``(x, y)``, or an iterable of such, for the distributions that look at data.
        loss: ``(output, y) -> scalar``; cross-entropy by default.
        include: only these layers (see `find_layers`, also for `exclude`, `split` and `structure`).
        structure: the units that are active or not: ``"entries"``; ``"block:64"`` for whole blocks of 64 x 64; or
            ``"2:4"`` for two of any aligned four, where every layer has the density 0.5, whatever the distribution.
        floor: what to do with a layer that is given fewer entries than orthogonality needs: ``raise`` takes them from
            the other layers, ``minimal`` adds them to the total, ``partial`` keeps the count and makes a partial
            isometry, ``error`` refuses.
        group: the ranks that hold this model, by default all. Each stage of a pipeline has a group of its own.
        options: go to the distribution or the scheme that takes an argument of that name
            (``compat="paper-code"``, ``depthwise="shift"``, ``center_density=0.3``). ``align="mask"`` of the scheme
            ``eoi`` has an effect with distributions that score weights: random places are nothing to align to.

    Raises:
        TypeError: an argument, or weights, of a wrong type; the model is unchanged, as below.
        ValueError: a bad argument, nothing to sparsify, or a model that has masks already.

    Example:
        >>> model = nn.Sequential(nn.Linear(20, 40), nn.Tanh(), nn.Linear(40, 10))
        >>> report = sparsify(model, 0.25, generator=torch.Generator().manual_seed(0))
        >>> report.got, report.numel, report.rows[0].orthogonality < 1e-5
        (300, 1200, True)
    """
    check_group(group)
    with raised_on_every_rank(group):
        density, model = check_density(density), unwrapped(check_model(model))
        distribute, fill = lookup(DISTRIBUTIONS, distribution, "distribution"), lookup(SCHEMES, scheme, "scheme")
        lookup(FLOORS, floor, "floor")
        own = _route(options, {f"distribution {distribution!r}": distribute, f"scheme {scheme!r}": fill})
        layers = _layers(model, include=include, exclude=exclude, split=split, structure=structure)
        drawn = draw_seed(generator)
    check_same_model(model, layers, group)
    seed = broadcast_seed(drawn, group)
    data = {"batch": batch, "loss": loss, "generator": derive(seed, "distribution")}
    with raised_on_every_rank(group):
        given = distribute(model, density, layers=layers, **data, **own[0])
    given = broadcast_masks(given, group)
    if not isinstance(given, ScoredMasks):
        own[1].pop("align", None)  # random places are nothing to align to
    least: Callable[..., int] = SCHEME_FLOORS.get(scheme, _no_floor)
    floors = {name: least(layer, **own[1]) for name, layer in layers.items()}
    masks = dict(meet_floors(given, floors, floor, seed, layers))
    asked, scored = counts_of(given), given if isinstance(given, ScoredMasks) else None
    del given  # each mask can be freed as soon as its layer has another one
    with _unchanged_on_error(model, layers):
        values: dict[str, Any] = {"gain": gain, "bias_std": bias_std, "generator": derive(seed, "scheme")}
        if "consume" in inspect.signature(fill).parameters:
            values["consume"] = True
        masks = fill(model, masks, layers=layers, **values, **own[1])
        masking.attach(model, masks, layers=layers, filled=True)
        masking.synchronize(model, group)
        notes = floor_notes(asked, counts_of(masks), floors)
        shared: Mapping[str, float] = overlap(scored, masks) if scored else {}
        rows = [
            row_of(
                layer,
                full_tensor(layer.parameter()),  # zero off the mask
                masks[name],
                asked=asked[name],
                overlap=shared.get(name),
                gain=gain,
                note="; ".join(filter(None, [notes[name], structure_note(layer, structure)])),
            )
            for name, layer in layers.items()
        ]
    total = sum(asked.values()) if structure == ENTRIES else count_of(density, sum(row.numel for row in rows))
    return Report(tuple(rows), total, distribution, scheme, gain, seed, left_dense(model, layers), structure)


def _no_floor(layer: Layer, **own: Any) -> int:
    del layer, own  # any number of entries will do
    return 0


def _layers(model: nn.Module, **which: Any) -> dict[str, Layer]:
    if masking.is_sparsified(model):
        raise ValueError(
            "model: expected one without masks; this one is sparsified already: use replace_masks, or bake it"
        )
    layers = find_layers(model, **which)
    if not layers:
        left = summarize(left_dense(model, {})) or "it has no matrices"
        raise ValueError(f"model: expected at least one layer to sparsify; found none (left dense: {left})")
    for name, layer in layers.items():
        check_parameter(name, layer.parameter())
    return layers


def _route(options: Mapping[str, Any], members: Mapping[str, Callable[..., Masks]]) -> list[dict[str, Any]]:
    """Hand each option to the members that take an argument of that name."""
    taken = {what: set(inspect.signature(member).parameters) - _FAMILY for what, member in members.items()}
    for option in options:
        if not any(option in names for names in taken.values()):
            known = "; ".join(f"{what} takes {', '.join(sorted(names)) or 'none'}" for what, names in taken.items())
            raise ValueError(
                f"options: expected one that the distribution or the scheme takes; got {option!r} ({known})"
            )
    return [{name: value for name, value in options.items() if name in names} for names in taken.values()]


@contextmanager
def _unchanged_on_error(model: nn.Module, layers: Mapping[str, Layer]) -> Iterator[None]:
    """Take off all masks, and put weights and biases back as they were, when the block raises."""
    leaves = [leaf(layer.module, tensor) for layer in layers.values() for tensor in (layer.tensor, *layer.biases)]
    before = [parameter.detach().clone() for parameter in leaves]
    try:
        yield
    except BaseException:
        masking.bake(model)
        with torch.no_grad():
            for parameter, value in zip(leaves, before, strict=True):
                parameter.copy_(value)
        raise
