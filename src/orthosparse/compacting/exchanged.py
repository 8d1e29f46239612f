"""compact and expand: masked layers exchanged for modules of active weights alone, and back."""

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
from orthosparse.masking.optimizer_state import check_hand_over
from orthosparse.modules.compact_module import Compact


def compact(
    model: nn.Module,
    batch: Any = None,
    *,
    like: Any = None,
    optimizer: torch.optim.Optimizer | None = None,
) -> CompactTable:
    """Exchange masked layers of `model` for modules whose parameter holds the active weights alone.

    A mask of whole blocks makes a `BlockLinear`, with kernels for GPUs; a mask of single entries makes a
    `SparseLinear`, or a `SparseConv` of a convolution, for CPUs. They compute the same, and gradients, optimizer state,
    checkpoints and what processes send each other have the size of the active weights. Call it before
    DistributedDataParallel, ``fully_shard`` and ``torch.compile``.

    Args:
        batch: what the model is called with: a tensor, a tuple of arguments, or a dict of keyword arguments. Then both
            forms of each layer are timed, forward + backward, on the shapes it meets, and the faster is kept; rank 0
            measures for all. Without it every layer that has a kernel on its device is exchanged.
        like: repeats a choice without timing: a table from an earlier call, or a state dict of the model it was made
            on, whose layers may then also be exchanged in a model without masks, to load that state dict.
        optimizer: the one that trains the model already: it goes on with the new parameters, from the same state.

    Returns:
        a table of all masked layers: the form of each, how many times as fast it is, and why not where not.

    Raises:
        TypeError: a `batch`, `like` or `optimizer` of another kind; the model is unchanged, as below.
        ValueError: a model that is wrapped, sharded or compiled already, a weight with hooks, an optimizer
            whose state does not belong to single weights, or that does not hold a weight that is exchanged and not
            frozen, or a `like` that does not fit.

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
    rows = [_row(each, chosen, ratios, batch is not None) for each in [*candidates, *_added(candidates, chosen)]]
    exchange_all(model, zip((each.module for each in chosen), built, strict=True), optimizer)
    return CompactTable(tuple(rows))


def expand(model: nn.Module, *, optimizer: torch.optim.Optimizer | None = None) -> None:
    """Exchange modules of active weights for masked layers again: the same weights, to the last bit.

    Args:
        optimizer: the one that trains the model: it goes on with the new parameters, from the same state.

    Raises:
        ValueError: a model that is wrapped, sharded or compiled, or an optimizer as `compact` refuses it; the model is
            unchanged.

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
    what = (
        type(model).__name__
        if isinstance(model, wrappers)
        else "torch.compile"
        if compiled
        else _divided_by(model)
        if any(is_sharded(parameter) for parameter in model.parameters())
        else ""
    )
    if what == "parallelize_module":
        raise ValueError(
            "model: expected one before parallelize_module, which does not divide compact layers either: with tensor "
            "parallelism layers stay masked"
        )
    if what:
        raise ValueError(f"model: expected one before {what}, which would not see the exchange; call this first")


def _divided_by(model: nn.Module) -> str:
    managed = any(getattr(module, "_is_fsdp_managed_module", False) for module in model.modules())
    return "fully_shard" if managed else "parallelize_module"


def _like(model: nn.Module, candidates: list[Candidate], like: Any) -> list[Candidate]:
    known, chosen = {each.name: each for each in candidates}, []
    for name, form in forms_like(like).items():
        unit_of(form)
        if name not in known:
            chosen.append(layer_without_mask(model, name, form, like if isinstance(like, Mapping) else {}))
        elif known[name].form == MASKED:
            raise ValueError(f"like: expected layers that can be exchanged; {name!r}: {known[name].note}")
        else:
            chosen.append(replace(known[name], form=form))
    return chosen


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


def _row(each: Candidate, chosen: list[Candidate], ratios: Mapping[str, float], timed: bool) -> Form:
    shape, taken = tuple(each.parameter.shape), {other.name: other.form for other in chosen}
    active = each.units * unit_of(each.form) ** 2 if each.mask is None else int(each.mask.count_nonzero())
    density = active / each.parameter.numel()
    ratio, note = ratios.get(each.name), each.note
    if timed and not note and each.name not in taken:
        note = "not reached by the batch" if ratio is None else "slower"
    return Form(each.name, shape, density, taken.get(each.name, MASKED), ratio, note)
