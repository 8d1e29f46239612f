"""The two keys that a masked tensor has in the state dict: out of torch's names for a parametrization, and back."""

from typing import Any

import torch
from torch import Tensor, nn


def save(module: nn.Module, state: dict[str, Any], prefix: str, _: Any, *, tensor: str) -> None:
    """Give a masked tensor of `module` its two keys (a post hook of ``state_dict``)."""
    del module
    inner = f"{prefix}parametrizations.{tensor}."
    for key, inside in ((tensor, "original"), (f"{tensor}_mask", "0.mask")):
        if inner + inside in state:
            state[prefix + key] = state.pop(inner + inside)


def load(
    module: nn.Module,
    state: dict[str, Any],
    prefix: str,
    _: Any,
    strict: bool,
    missing: list[str],
    unexpected: list[str],
    errors: list[str],
    *,
    tensor: str,
) -> None:
    """Lead the two keys of a masked tensor of `module` to it (a hook before ``load_state_dict``)."""
    del unexpected
    masked: Any = module.parametrizations[tensor]  # type: ignore[index]
    holder, inner = masked.holder, f"{prefix}parametrizations.{tensor}."
    value = state.pop(prefix + tensor, state.get(f"{inner}original"))
    mask = state.pop(f"{prefix}{tensor}_mask", None)
    if strict and value is None:
        missing.append(prefix + tensor)
    if strict and mask is None and holder.lost:
        missing.append(f"{prefix}{tensor}_mask")
    if value is not None and getattr(value, "shape", None) != masked.original.shape:
        errors.append(_misfit(prefix + tensor, value, masked.original))
        value = None
    if mask is not None and (getattr(mask, "shape", None) != holder.mask.shape or mask.dtype is not torch.bool):
        errors.append(_misfit(f"{prefix}{tensor}_mask", mask, holder.mask))
        mask = None
    # A dense checkpoint has no mask: the one that is there stays.
    state[f"{inner}original"] = masked.original if value is None else value
    state[f"{inner}0.mask"] = holder.mask if mask is None else mask
    holder.lost = holder.lost and mask is None


def _misfit(key: str, value: Any, expected: Tensor) -> str:
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", type(value))
    return f"size mismatch for {key}: got {shape} ({dtype}), the model has {expected.shape} ({expected.dtype})."
