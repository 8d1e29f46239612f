"""The front door: one call makes a model exactly sparse, and orthogonal, and says what it did."""

import inspect
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from orthosparse import masking
from orthosparse._layers_left import left_dense, told
from orthosparse._layers_tensors import check_can_be_filled
from orthosparse.agreement import agreed_masks, agreed_seed
from orthosparse.choices import DistributionName, FloorName, SchemeName
from orthosparse.counts import check_density, raise_to_floors
from orthosparse.distributions import DISTRIBUTIONS
from orthosparse.layers import Layer, Split, find_layers, leaf, unwrapped
from orthosparse.mappings import Counts, Masks
from orthosparse.masks import counts_of, resize
from orthosparse.randomness import derive, draw_seed
from orthosparse.registry import lookup
from orthosparse.report import Report, row_of
from orthosparse.schemes import SCHEMES
from orthosparse.selection import Selector

_log = logging.getLogger(__name__)

FLOORS = {
    "raise": "take the missing entries from the other layers, the total kept",
    "partial": "keep the counts: such layers become partial isometries",
    "error": "refuse",
}
# What every member of a family is handed; what else it takes is an option of its own.
_FAMILY = {"model", "density", "masks", "layers", "batch", "loss", "gain", "bias_std", "generator", "floor"}


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
    gain: float = 1.0,
    bias_std: float = 0.0,
    floor: FloorName | str = "raise",
    generator: torch.Generator | None = None,
    **options: Any,
) -> Report:
    """Give `model` masks of exactly ``density * weights`` ones (the nearest integer, halves up), and weights on them.

    (`dense_ends` reads `density` as that of the inner layers, and so keeps more.)

    Under torch.distributed every rank ends with rank 0's masks and weights, whatever it was seeded with.

    Args:
        distribution: how many weights each layer may keep, a name in DISTRIBUTIONS.
        scheme: which ones and with what values, a name in SCHEMES.
        batch: ``(x, y)``, or an iterable of such, for the distributions that look at data.
        loss: ``(output, y) -> scalar``; cross-entropy by default.
        include: only these layers (see `find_layers`, also for `exclude` and `split`).
        floor: what to do with a layer that is given fewer entries than orthogonality needs: ``raise`` takes them from
            the other layers, ``partial`` keeps the count and makes a partial isometry, ``error`` refuses.
        options: go to the distribution or the scheme that takes an argument of that name
            (``compat="paper-code"``, ``depthwise="shift"``, ``center_density=0.3``).

    Raises:
        TypeError: an argument, or weights, of a wrong type; the model is unchanged, as below.
        ValueError: a bad argument, nothing to sparsify, or a model that has masks already.

    Example:
        >>> model = nn.Sequential(nn.Linear(20, 40), nn.Tanh(), nn.Linear(40, 10))
        >>> report = sparsify(model, 0.25, generator=torch.Generator().manual_seed(0))
        >>> report.got, report.numel, report.rows[0].orthogonality < 1e-5
        (300, 1200, True)
    """
    density = check_density(density)
    distribute, fill = lookup(DISTRIBUTIONS, distribution, "distribution"), lookup(SCHEMES, scheme, "scheme")
    lookup(FLOORS, floor, "floor")
    own = _route(options, {f"distribution {distribution!r}": distribute, f"scheme {scheme!r}": fill})
    model = unwrapped(model)
    layers = _layers(model, include, exclude, split)
    seed = agreed_seed(draw_seed(generator))
    data = {"batch": batch, "loss": loss, "generator": derive(seed, "distribution")}
    given = agreed_masks(distribute(model, density, layers=layers, **data, **own[0]))
    floors = {name: _floor(layer, scheme, own[1]) for name, layer in layers.items()}
    masks = _above_floors(given, floors, floor, seed)
    asked = counts_of(given)
    with _unchanged_on_error(model, layers):
        values = {"gain": gain, "bias_std": bias_std, "generator": derive(seed, "scheme")}
        masks = fill(model, masks, layers=layers, **values, **own[1])
        masking.attach(model, masks, layers=layers)
        masking.synchronize(model)
        notes = _notes(asked, counts_of(masks), floors)
        rows = [
            row_of(layer, _whole(layer.weight()), masks[name], asked=asked[name], gain=gain, note=notes[name])
            for name, layer in layers.items()
        ]
    return Report(tuple(rows), sum(asked.values()), distribution, scheme, gain, seed, left_dense(model, layers))


def _layers(
    model: nn.Module,
    include: Sequence[Selector] | Selector | None,
    exclude: Sequence[Selector] | Selector,
    split: Split | None,
) -> dict[str, Layer]:
    if masking.is_sparsified(model):
        raise ValueError(
            "model: expected one without masks; this one is sparsified already: use replace_masks, or bake it"
        )
    layers = find_layers(model, include=include, exclude=exclude, split=split)
    if not layers:
        left = told(left_dense(model, {})) or "it has no matrices"
        raise ValueError(f"model: expected at least one layer to sparsify; found none (left dense: {left})")
    for name, layer in layers.items():
        check_can_be_filled(name, layer.parameter())
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


def _floor(layer: Layer, scheme: str, options: Mapping[str, Any]) -> int:
    """The fewest entries the scheme needs here: EOI alone draws orthogonal matrices on the counts it is given."""
    kept_as_it_is = layer.groups > 1 and options.get("depthwise", "keep") == "keep"
    return layer.floor if scheme == "eoi" and not kept_as_it_is else 0


def _above_floors(masks: Masks, floors: Counts, floor: str, seed: int) -> Masks:
    counts = counts_of(masks)
    below = [name for name, count in counts.items() if count < floors[name]]
    if not below or floor == "partial":
        return masks
    numel, least = sum(mask.numel() for mask in masks.values()), sum(floors.values())
    remedy = f"density {least / numel:.6f} is the least for this model; floor='partial' makes partial isometries"
    if floor == "error":
        named = ", ".join(f"{name} has {counts[name]} of {floors[name]}" for name in below)
        raise ValueError(f"density: expected enough entries for orthogonality in every layer; {named}; {remedy}")
    if sum(counts.values()) < least:
        raise ValueError(
            f"density: expected at least {least} entries, the sum of the floors; got {sum(counts.values())}; {remedy}"
        )
    raised = raise_to_floors(counts, floors)
    _log.warning("below their floors, raised at the cost of the other layers: %s", ", ".join(below))
    moved = {name for name in counts if raised[name] != counts[name]}
    return {
        name: resize(mask, raised[name], generator=derive(seed, name, "floor")).to(mask.device)
        if name in moved
        else mask
        for name, mask in masks.items()
    }


def _notes(asked: Counts, got: Counts, floors: Counts) -> dict[str, str]:
    """What became of each layer's count, in words."""
    notes = dict.fromkeys(got, "")
    for name, after in got.items():
        before = asked[name]
        if before < floors[name]:
            met = after >= floors[name]
            notes[name] = f"raised to its floor {floors[name]}" if met else f"partial: floor {floors[name]}"
        elif after != before:
            notes[name] = f"gave {before - after}" if after < before else f"took {after - before}"
    return notes


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


def _whole(weight: torch.Tensor) -> torch.Tensor:
    """The whole of a weight that FSDP2 may have sharded (a DTensor, whose module takes a second to import)."""
    gather = getattr(weight, "full_tensor", None)
    return weight if gather is None else gather()
