"""prune: remove weights of a model, once or step by step; the others keep their values."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from orthosparse import masking
from orthosparse.aliases import Density, DistributionName, Masks, StructureName
from orthosparse.checks import check_model, check_optimizer, check_parameter, check_progress
from orthosparse.counts import check_densities, count_of, densities_by_layer
from orthosparse.distributed import broadcast_masks, broadcast_seed, full_tensor
from orthosparse.distributions import DISTRIBUTIONS
from orthosparse.layers import Layer, Selector, find_layers, left_dense, unwrapped
from orthosparse.masking.loading import without_wrappers
from orthosparse.masking.masked_tensor import masked_tensors
from orthosparse.masking.transactions import undone_on_error
from orthosparse.masks import ScoredMasks, counts_of, density_of, top_units
from orthosparse.members import label, member_of, route
from orthosparse.modules.compact_module import Compact
from orthosparse.progress import Progress
from orthosparse.randomness import derive, draw_seed
from orthosparse.report import Report, Row, row_of
from orthosparse.state_checks import check_weights
from orthosparse.structures import ENTRIES, block_of, structure_of

KEPT = "values kept"  # in the report, in place of a scheme


def prune(
    model: nn.Module,
    density: Density | None = None,
    *,
    distribution: DistributionName | str | Callable[..., Masks] = "magnitude",
    batch: Any = None,
    loss: Callable[..., Tensor] | None = None,
    include: Sequence[Selector] | Selector | None = None,
    exclude: Sequence[Selector] | Selector = (),
    structure: StructureName | str = ENTRIES,
    rewind: Mapping[str, Tensor] | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    generator: torch.Generator | None = None,
    seed: int | None = None,
    progress: Progress = False,
    **options: Any,
) -> Report:
    """Keep exactly ``density * weights`` of the weights of `model`, those with the largest scores, at their values.

    A model that already has masks, from here or from `sparsify`, is pruned further: the new masks lie inside the old
    ones, and masks of whole blocks stay whole blocks. Calls with falling densities, with training between them, prune
    step by step. If the call raises, the model is unchanged.

    Args:
        density: density of all layers together, counting active and inactive weights, or a mapping from layer names and
            globs to densities, as in `sparsify`. Layers without a match stay as they are.
        distribution: scores the weights: ``magnitude``, ``snip``, ``grasp``, ``synflow``, ``snip_iterative``, or your
            own function with the same signature that returns `ScoredMasks`.
        batch: ``(x, y)``, or an iterable of such pairs, for distributions that need data.
        loss: ``(output, y) -> scalar``; cross-entropy by default.
        include: only these layers (see `find_layers`); for a model without masks.
        exclude: all but these layers; for a model without masks.
        structure: the units that are kept or removed, for a model without masks: ``"entries"``, or ``"block:64"`` for
            the blocks of 64 x 64 with the largest mean scores (see `find_layers`).
        rewind: an earlier state dict of the model, or of a wrapper that `load_sparse` knows. The remaining weights, and
            everything else, go back to its values. Its masks are ignored.
        optimizer: the optimizer that has trained the model; its state of the removed weights is reset.
        generator: random numbers (for dropout while weights are scored) come from it.
        seed: as in `sparsify`; ``seed=report.seed`` repeats a call.
        progress: as in `sparsify`.
        options: passed to the distribution.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: an argument is invalid, the distribution draws masks at random, `density` is larger than that of the
            model's masks, or `rewind` is the state dict of another model.

    Example:
        >>> model = nn.Sequential(nn.Linear(20, 40), nn.Tanh(), nn.Linear(40, 10))
        >>> [prune(model, density).got for density in (0.5, 0.2, 0.05)]
        [600, 240, 60]
    """
    model = unwrapped(check_model(model))
    score = member_of(DISTRIBUTIONS, distribution, "distribution")
    check_progress(progress)
    (own,) = route(options, [score], inspect.signature(prune).parameters)
    check_optimizer(optimizer)
    old = masking.masks_of(model)
    density = check_densities(density)
    layers = _layers(model, old, density, include=include, exclude=exclude, structure=structure)
    old = {name: mask for name, mask in old.items() if name in layers}
    _check_falling(old, density)
    state = None if rewind is None else _plain_state(model, rewind)
    seed = broadcast_seed(draw_seed(generator, seed))
    data = {"batch": batch, "loss": loss, "generator": derive(seed, "distribution")}
    chosen = score(model, density, layers=layers, progress=progress, **data, **own)
    if not isinstance(chosen, ScoredMasks):
        raise ValueError(f"distribution: expected one that scores weights; {score.name!r} draws them at random")
    masks = broadcast_masks(_inside(chosen, old, density) if old else dict(chosen))
    del chosen  # the scores, which take as much memory as the weights
    with undone_on_error(model, optimizer) as saved:
        if state is not None:
            for tensor in (*model.parameters(), *model.buffers()):
                saved.save(tensor)
            masking.load_sparse(model, state)
        rows = _rows(layers, masks, structure)
        name, left = label(score, density, scored=True), left_dense(model, layers)
        report = Report(rows, sum(counts_of(masks).values()), name, KEPT, None, seed, left, structure)
        if old:
            masking.replace_masks(model, masks, optimizer=optimizer)
        else:
            masking.attach(model, masks, layers=layers, optimizer=optimizer)
    return report


def _rows(layers: Mapping[str, Layer], masks: Masks, structure: str) -> tuple[Row, ...]:
    """Measure layers as they will be under masks that they do not have yet."""
    asked, rows = counts_of(masks), []
    for name, layer in layers.items():
        whole, mask = full_tensor(layer.parameter()), masks[name]
        weight = torch.where(mask.to(whole.device), whole, 0)
        rows.append(row_of(layer, weight, mask, asked=asked[name], overlap=None, gain=1.0, structure=structure))
    return tuple(rows)


def _layers(
    model: nn.Module, old: Masks, density: Density, *, include: Any, exclude: Any, structure: str
) -> dict[str, Layer]:
    """Return the layers to prune: those with masks or the selected ones, if `density` has a density for them."""
    if not old:
        layers = find_layers(model, include=include, exclude=exclude, structure=structure)
    elif include is None and not exclude and structure == ENTRIES:
        modules = dict(model.named_modules())
        owners = [name if name in modules else name.rpartition(".")[0] for name in old]  # "": the model itself
        selected = find_layers(model, include=None if "" in owners else owners)
        layers = {name: selected[name] for name in old if name in selected}
    else:
        argument = "include" if include is not None else "exclude" if exclude else "structure"
        raise ValueError(f"{argument}: expected none for a model that has masks: the masked layers are pruned")
    if compact := [name for name, module in model.named_modules() if isinstance(module, Compact)]:
        raise ValueError(f"model: expected no compact layers; got {', '.join(compact)}: call expand(model) first")
    if not layers or layers.keys() < old.keys():
        missing = ", ".join(old.keys() - layers.keys()) or "any"
        raise ValueError(f"model: expected layers to prune, named or found by find_layers; did not find {missing}")
    if isinstance(density, Mapping):
        layers = {name: layers[name] for name in densities_by_layer(density, layers)}
    for name, layer in layers.items():
        check_parameter(name, layer.parameter())
    if not old:
        masking.check_maskable(model, layers)
    return layers


def _check_falling(old: Masks, density: Density) -> None:
    for names, share in _parts(old, density):
        masks = {name: old[name] for name in names}
        if masks and count_of(share, sum(mask.numel() for mask in masks.values())) > sum(counts_of(masks).values()):
            which = f" of {names[0]!r}" if isinstance(density, Mapping) else "s"
            raise ValueError(
                f"density: expected at most {density_of(masks):.6g}, that of the mask{which}; got {share!r}"
            )


def _inside(chosen: ScoredMasks, old: Masks, density: Density) -> Masks:
    """Return the masks of the largest scores among the weights that are active, in the units of the old masks."""
    blocks = {name: block_of(structure_of(mask)) for name, mask in old.items()}
    new: Masks = {}
    for names, share in _parts(old, density):
        count = count_of(share, sum(old[name].numel() for name in names))
        own = {name: chosen.scores[name] for name in names}
        new |= top_units(own, {name: blocks[name] for name in names}, count, within=old)
    return {name: new[name].to(mask.device) for name, mask in old.items()}


def _parts(masks: Masks, density: Density) -> list[tuple[list[str], float]]:
    """Return the layers that share a density, with that density: all together, or each alone for densities by layer."""
    if not isinstance(density, Mapping):
        return [([*masks], density)]
    return [([name], share) for name, share in densities_by_layer(density, masks).items()] if masks else []


def _plain_state(model: nn.Module, rewind: Mapping[str, Tensor]) -> dict[str, Any]:
    """Return the state dict without masks; raise unless it fits the model."""
    masks = {
        f"{name}.{tensor}_mask".lstrip(".")
        for name, module in model.named_modules(remove_duplicate=False)
        for tensor, _ in masked_tensors(module)
    }
    own = {key: value for key, value in model.state_dict().items() if key not in masks}
    state = without_wrappers(check_weights(rewind, "rewind"), model)
    plain = {key: value for key, value in state.items() if key in own or not _is_mask(key, state)}
    for key in {**own, **plain}:
        shape, expected = getattr(plain.get(key), "shape", None), getattr(own.get(key), "shape", None)
        if shape is None or shape != expected:
            shapes = f"{key!r} has shape {shape} in rewind and {expected} in the model"
            raise ValueError(f"rewind: expected a state dict of this model; {shapes}")
    return plain


def _is_mask(key: str, state: Mapping[str, Any]) -> bool:
    return key.endswith("_mask") and key.removesuffix("_mask") in state
