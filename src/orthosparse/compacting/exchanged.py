"""compact and expand: replace masked layers with modules that hold only their active weights, and back."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parameter import is_lazy

from orthosparse.checks import check_autograd, check_model, check_optimizer
from orthosparse.compacting.forms import Candidate, build, candidates_of, layer_without_mask, unit_of
from orthosparse.compacting.table import MASKED, CompactTable, Form, forms_like
from orthosparse.compacting.timing import ratios_of
from orthosparse.distributed import is_sharded
from orthosparse.masking.exchange import exchange_all, masked_form, uncompact
from orthosparse.masking.loading import without_wrappers
from orthosparse.masking.optimizer_state import check_hand_over
from orthosparse.modules.compact_module import Compact


def compact(
    model: nn.Module,
    batch: Any = None,
    *,
    like: Any = None,
    optimizer: torch.optim.Optimizer | None = None,
) -> CompactTable:
    """Replace masked layers of `model` with modules that hold only their active weights.

    A mask of whole blocks becomes a `BlockLinear`, which has kernels for GPUs. A mask of single entries becomes a
    `SparseLinear`, or a `SparseConv` if the layer is a convolution, which run on CPUs. The model computes the same
    outputs, while gradients, optimizer state, checkpoints and communication have the size of the active weights. Call
    this before DistributedDataParallel, ``fully_shard`` and ``torch.compile``. If the call raises, the model is
    unchanged.

    Args:
        batch: the input of the model: a tensor, a tuple of arguments, or a dict of keyword arguments. Both forms of
            each layer are then timed (forward + backward) on the shapes that the layer gets, and the faster one is
            kept; in a distributed run, rank 0 measures for all ranks. Without a batch, every layer that has a kernel on
            its device is replaced.
        like: repeats an earlier choice without timing: the table of an earlier call, or a state dict of the model after
            it, or of a wrapper that `load_sparse` knows. With a state dict, layers can also be replaced in a model
            without masks, to load that state dict.
        optimizer: the optimizer of the model, if it exists already; it continues with the new parameters and the same
            state.

    Returns:
        A table with one row for each masked layer: its new form, the speedup, and why a layer was not replaced.

    Raises:
        TypeError: `batch`, `like` or `optimizer` has the wrong type.
        ValueError: the model is wrapped, sharded or compiled already, a weight has hooks, the state of the optimizer
            does not belong to single weights, or it does not hold a replaced weight that is not frozen, or `like` does
            not fit the model.

    Example:
        >>> import orthosparse
        >>> model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8))
        >>> _ = orthosparse.sparsify(model, 0.1, generator=torch.Generator().manual_seed(0))
        >>> compact(model).exchanged
        {'0': 'entries', '2': 'entries'}
        >>> model[0]
        SparseLinear(in_features=64, out_features=64, bias=True, density=0.07202)
    """
    _check_unwrapped(model)
    check_optimizer(optimizer)
    candidates = candidates_of(model)
    ratios: dict[str, float] = {}
    if like is not None:
        chosen = _like(model, candidates, like)
    elif batch is not None:
        ratios = _agreed(model, batch, candidates)
        chosen = [each for each in candidates if ratios.get(each.name, 0.0) > 1]
    else:
        chosen = [each for each in candidates if each.form != MASKED]
    check_hand_over(optimizer, {each.name: each.parameter for each in chosen})
    built = [_built(each) for each in chosen]
    taken = {each.name: each.form for each in chosen}
    rows = [_row(each, taken, ratios, batch is not None) for each in [*candidates, *_added(candidates, chosen)]]
    exchange_all(model, zip((each.module for each in chosen), built, strict=True), optimizer)
    return CompactTable(tuple(rows))


def expand(model: nn.Module, *, optimizer: torch.optim.Optimizer | None = None) -> None:
    """Replace the modules that `compact` made with masked layers again, with exactly the same weights.

    If the call raises, the model is unchanged.

    Args:
        optimizer: the optimizer of the model; it continues with the new parameters and the same state.

    Raises:
        ValueError: the model is wrapped, sharded or compiled, or `compact` would not accept the optimizer.

    Example:
        >>> import orthosparse
        >>> model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8))
        >>> _ = orthosparse.sparsify(model, 0.1, generator=torch.Generator().manual_seed(0))
        >>> _ = compact(model)
        >>> expand(model)
        >>> sorted(model.state_dict())[:3]
        ['0.bias', '0.weight', '0.weight_mask']
    """
    _check_unwrapped(model)
    uncompact(model, masked_form, optimizer)


def _check_unwrapped(model: nn.Module) -> None:
    check_model(model)
    check_autograd()
    if any(is_lazy(parameter) for parameter in model.parameters()):
        raise ValueError("model: expected one whose layers have shapes; run the lazy modules on a batch first")
    wrappers = (nn.parallel.DistributedDataParallel, nn.DataParallel)
    compiled = hasattr(model, "_orig_mod") or any(
        getattr(module, "_compiled_call_impl", None) is not None for module in model.modules()
    )
    wrapper = (
        type(model).__name__
        if isinstance(model, wrappers)
        else "torch.compile"
        if compiled
        else _divided_by(model)
        if any(is_sharded(parameter) for parameter in model.parameters())
        else ""
    )
    if wrapper == "parallelize_module":
        raise ValueError(
            "model: expected one before parallelize_module, which does not divide compact layers either: with tensor "
            "parallelism layers stay masked"
        )
    if wrapper:
        raise ValueError(f"model: expected one before {wrapper}, which would not see the exchange; call this first")


def _divided_by(model: nn.Module) -> str:
    managed = any(getattr(module, "_is_fsdp_managed_module", False) for module in model.modules())
    return "fully_shard" if managed else "parallelize_module"


def _like(model: nn.Module, candidates: list[Candidate], like: Any) -> list[Candidate]:
    known, firsts = {each.name: each for each in candidates}, dict[nn.Module, str]()
    named = model.named_modules(remove_duplicate=False)
    first = {name: firsts.setdefault(module, name) for name, module in named}  # a module may have several names
    chosen: dict[str, Candidate] = {}
    forms, state = forms_like(like), dict[str, Any]()
    if isinstance(like, Mapping) and "rows" not in like:
        state = without_wrappers(like, model)
        forms = forms_like(state)
    for name, form in forms.items():
        unit_of(form)
        layer = first.get(name, name)
        if layer in chosen:
            continue
        if layer not in known:
            found = layer_without_mask(model, name, form, state)
            chosen[layer] = replace(found, name=layer)
        elif known[layer].form == MASKED:
            raise ValueError(f"like: expected layers that can be exchanged; {layer!r}: {known[layer].note}")
        else:
            chosen[layer] = replace(known[layer], form=form)
    return [*chosen.values()]


def _built(each: Candidate) -> Compact:
    try:
        return build(each)
    except ValueError as error:
        raise ValueError(f"like: {each.name!r}: {error}") from None


def _agreed(model: nn.Module, batch: Any, candidates: list[Candidate]) -> dict[str, float]:
    """The ratios that rank 0 has measured."""
    alone = not (dist.is_available() and dist.is_initialized())
    box = [ratios_of(model, batch, candidates) if alone or dist.get_rank() == 0 else {}]
    if not alone:
        dist.broadcast_object_list(box, src=0)
    return box[0]


def _added(candidates: list[Candidate], chosen: list[Candidate]) -> list[Candidate]:
    """The layers without a mask that a state dict says to exchange."""
    known = {each.name for each in candidates}
    return [each for each in chosen if each.name not in known]


def _row(each: Candidate, taken: Mapping[str, str], ratios: Mapping[str, float], timed: bool) -> Form:
    shape = tuple(each.parameter.shape)
    active = each.units * unit_of(each.form) ** 2 if each.mask is None else int(each.mask.count_nonzero())
    density = active / max(1, each.parameter.numel())
    ratio, note = ratios.get(each.name), each.note
    if timed and not note and each.name not in taken:
        note = "not reached by the batch" if ratio is None else "slower"
    return Form(each.name, shape, density, taken.get(each.name, MASKED), ratio, note)
