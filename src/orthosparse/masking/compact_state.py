"""State dicts of masked layers for modules of active weights, and the other way round."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from orthosparse.layers import leaf, tensor_names
from orthosparse.modules.compact_module import Compact
from orthosparse.state_checks import check_loadable

_KEYS = ("values", "row_starts", "columns")
_BOOL, _INTEGER = torch.empty(0, dtype=torch.bool), torch.empty(0, dtype=torch.int32)


def translate(model: nn.Module, state: dict[str, Any]) -> None:
    """Change `state`, in place, where it holds a layer in another form than `model` does.

    A dense weight without a mask is read at the indices that a module of active weights has.

    Raises:
        TypeError: a value is not a dense tensor, or is of another kind of numbers.
        ValueError: the indices of the units are impossible, or their number is not that of the module.
    """
    for name, module in model.named_modules(remove_duplicate=False):
        prefix = f"{name}." if name else ""
        compact = all(f"{prefix}{key}" in state for key in _KEYS)
        if isinstance(module, Compact) and compact:
            for key in _KEYS[1:]:
                check_loadable(f"{prefix}{key}", state[f"{prefix}{key}"], getattr(module, key), assign=True)
            if reason := module.why_unloadable(state[f"{prefix}row_starts"], state[f"{prefix}columns"]):
                raise ValueError(f"state: {prefix}row_starts, {prefix}columns: {reason}")
        elif isinstance(module, Compact) and f"{prefix}weight" in state:
            _to_compact(module, state, prefix)
        elif compact and not isinstance(module, Compact) and "weight" in tensor_names(module):
            _to_masked(leaf(module, "weight"), state, prefix)


def _to_compact(module: Compact, state: dict[str, Any], prefix: str) -> None:
    _check(state, f"{prefix}weight", like=module.values)
    if f"{prefix}weight_mask" in state:
        _check(state, f"{prefix}weight_mask", like=_BOOL)
    weight, mask = state.pop(f"{prefix}weight"), state.pop(f"{prefix}weight_mask", None)
    if tuple(weight.shape) != module.weight_shape or (mask is not None and mask.shape != weight.shape):
        raise ValueError(f"state: expected shape {module.weight_shape} for {prefix}weight; got {tuple(weight.shape)}")
    twin = _layer(module.in_features, module.out_features, module.units, module.unit, like=weight)
    try:
        twin.move(module.indices().to(weight.device) if mask is None else twin.indices_of(mask.to(weight.device)))
    except ValueError as error:
        raise ValueError(f"state: {prefix}weight_mask: {error}") from None
    state.update({f"{prefix}values": twin.gather(weight)})
    state.update({f"{prefix}{key}": getattr(twin, key) for key in _KEYS[1:]})


def _to_masked(weight: Tensor, state: dict[str, Any], prefix: str) -> None:
    for key, like in zip(_KEYS, (weight, _INTEGER, _INTEGER), strict=True):
        _check(state, f"{prefix}{key}", like=like)
    values, starts, columns = (state.pop(f"{prefix}{key}") for key in _KEYS)
    if values.dim() not in (2, 3):
        raise ValueError(f"state: expected 2 or 3 sides for {prefix}values; got shape {tuple(values.shape)}")
    out, inputs = weight.shape[0], weight[0].numel()
    units, unit = (values.shape[1], 1) if values.dim() == 2 else values.shape[:2]
    try:
        twin = _layer(inputs, out, units, unit, like=values)
        twin.load_state_dict({"values": values, "row_starts": starts, "columns": columns})
    except (RuntimeError, ValueError) as error:
        raise ValueError(
            f"state: {prefix}columns do not fit a weight of shape {tuple(weight.shape)}: {error}"
        ) from None
    state[f"{prefix}weight"] = twin.weight.detach().view(weight.shape)
    state[f"{prefix}weight_mask"] = twin.weight_mask.view(weight.shape)


def _check(state: Mapping[str, Any], key: str, *, like: Tensor) -> None:
    """Raise unless a value is a dense tensor in memory, of the kind of numbers of another."""
    check_loadable(key, state[key], like, assign=True)
    if state[key].is_meta:
        raise ValueError(f"state: expected tensors that lie in memory; {key!r} is on the meta device")


def _layer(inputs: int, outputs: int, units: int, unit: int, *, like: Tensor) -> Compact:
    from orthosparse.modules.block import BlockLinear  # operators come along, which take a while to import
    from orthosparse.modules.sparse import SparseLinear

    options: dict[str, Any] = {"bias": False, "device": like.device, "dtype": like.dtype}
    if unit == 1:
        return SparseLinear(inputs, outputs, units, **options)
    return BlockLinear(inputs, outputs, units, unit, **options)
