"""``load_state_dict`` in linear time, and rehearsed on tensors without memory before a first value is written."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import _IncompatibleKeys
from torch.nn.parameter import is_lazy

from orthosparse.distributed import is_sharded
from orthosparse.masking.masked_tensor import Mask
from orthosparse.substitution import substituted


def rehearse(model: nn.Module, state: Mapping[str, Any], *, strict: bool) -> None:
    """Raise what `load` would raise, and leave the model as it is.

    Raises:
        RuntimeError: keys that are missing, unexpected or misfit.
    """
    blank = {key: _blank(value) if isinstance(value, Tensor) else value for key, value in state.items()}
    with _without_memory(model):
        load(model, _like(state, blank), strict=strict)


def load(model: nn.Module, state: Mapping[str, Any], *, strict: bool, assign: bool = False) -> Any:
    """Load a state dict as ``load_state_dict`` does, which looks at every key once for every module."""
    if type(model).load_state_dict is not nn.Module.load_state_dict:
        return model.load_state_dict(state, strict=strict, assign=assign)
    keys, errors = _IncompatibleKeys([], []), list[str]()
    metadata = getattr(state, "_metadata", None) or {}
    _load(model, dict(state), "", metadata, assign, keys, errors)
    if strict and keys.unexpected_keys:
        errors.insert(0, f"Unexpected key(s): {_quoted(keys.unexpected_keys)}. ")
    if strict and keys.missing_keys:
        errors.insert(0, f"Missing key(s): {_quoted(keys.missing_keys)}. ")
    if errors:
        raise RuntimeError("\n\t".join([f"state: expected one that fits {type(model).__name__};", *errors]))
    return keys


def _load(
    module: nn.Module,
    state: dict[str, Any],
    prefix: str,
    metadata: Mapping[str, Any],
    assign: bool,
    keys: _IncompatibleKeys,
    errors: list[str],
) -> None:
    own = {**metadata.get(prefix[:-1], {}), **({"assign_to_params_buffers": True} if assign else {})}
    module._load_from_state_dict(state, prefix, own, True, keys.missing_keys, keys.unexpected_keys, errors)
    parts: dict[str, dict[str, Any]] = {}
    for key, value in state.items():
        name, dot, _ = key.removeprefix(prefix).partition(".")
        if dot:
            parts.setdefault(name, {})[key] = value
    for name, child in module._modules.items():
        if child is not None:
            _load(child, parts.get(name, {}), f"{prefix}{name}.", metadata, assign, keys, errors)
    for hook in module._load_state_dict_post_hooks.values():
        hook(module, keys)


def _quoted(keys: list[str]) -> str:
    return ", ".join(f'"{key}"' for key in keys)


def _like(state: Mapping[str, Any], values: dict[str, Any]) -> Any:
    """Other values with the metadata (versions of modules) that a state dict carries."""
    copied = type("StateDict", (dict,), {})(values)
    copied._metadata = getattr(state, "_metadata", None)
    return copied


@contextmanager
def _without_memory(model: nn.Module) -> Iterator[None]:
    """Stand-ins without memory for all tensors, and afterwards everything that a state dict can change as it was."""
    tensors = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    lost = {module: module.lost for module in model.modules() if isinstance(module, Mask)}
    extra = {module: module.get_extra_state() for module in model.modules() if _has_extra_state(module)}
    try:
        with substituted(model, {name: _blank(tensor) for name, tensor in tensors}):
            yield
    finally:
        for mask, value in lost.items():
            mask.lost = value
        for module, state in extra.items():
            module.set_extra_state(state)


def _has_extra_state(module: nn.Module) -> bool:
    cls = type(module)
    return cls.get_extra_state is not nn.Module.get_extra_state and cls.set_extra_state is not nn.Module.set_extra_state


def _blank(tensor: Tensor) -> Tensor:
    if is_lazy(tensor):
        kind: Any = type(tensor)
        return kind(tensor.requires_grad, device="meta")  # type: ignore[no-any-return]
    if is_sharded(tensor):
        blank = torch.empty_like(tensor, device="meta", requires_grad=False)
    else:
        blank = torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")
    return nn.Parameter(blank, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else blank
