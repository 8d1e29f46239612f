"""Load state dicts with masks into a model that has none, or other ones: all or nothing, in linear time."""

from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import _IncompatibleKeys
from torch.nn.parameter import is_lazy

from orthosparse.aliases import Masks
from orthosparse.checks import check_flag, check_model
from orthosparse.distributed import is_sharded, reshard, shard_like
from orthosparse.layers import layer_name, leaf, unwrapped
from orthosparse.masking.attach import Owner, attach, check_attachable, check_masks, owners_of, parameters_of
from orthosparse.masking.compact_state import translate
from orthosparse.masking.masked_tensor import Mask, masked_tensors
from orthosparse.state_checks import check_loadable, check_weights
from orthosparse.substitution import substituted


def load_sparse(model: nn.Module, state: Mapping[str, Any], *, strict: bool = True, assign: bool = False) -> Any:
    """Load a state dict that holds masks, and attach those that `model` lacks.

    The model and the state dict may hold a layer in different forms, masked or with active weights only; it is
    converted. The prefixes that DistributedDataParallel, torch.compile and AveragedModel put before every key are
    removed. Tied tensors stay tied, and need only one of their names in the state dict. Under FSDP2, every rank passes
    the whole state dict (or its shards) and keeps its own part. If the call raises, the model is unchanged.

    Args:
        strict: as in ``load_state_dict``: missing and unexpected keys are errors.
        assign: as in ``load_state_dict``; needed for a model on the meta device.

    Returns:
        The missing and unexpected keys, as ``load_state_dict`` does.

    Raises:
        TypeError: `state` is not a state dict, or one of its values has the wrong type.
        ValueError: a mask or a number of active units does not fit the model, or a value cannot be read.
        RuntimeError: `state` does not fit the model in another way.

    Example:
        >>> model, other = nn.Sequential(nn.Linear(2, 2)), nn.Sequential(nn.Linear(2, 2))
        >>> attach(other, {"0": torch.eye(2, dtype=torch.bool)})
        >>> load_sparse(model, other.state_dict())
        <All keys matched successfully>
        >>> int(model[0].weight.count_nonzero())
        2
    """
    model = unwrapped(check_model(model))
    for name, flag in (("strict", strict), ("assign", assign)):
        check_flag(flag, name)
    values, owners = without_wrappers(check_weights(state), model), owners_of(model)
    reshard(model)
    translate(model, values)
    _add_tied_names(model, values)
    missing = _take_missing_masks(model, values, owners)
    check_attachable(model, missing, owners)
    _lay_out(model, values, assign=assign)
    rehearse(model, values, strict=strict)
    before = {id(leaf(*tied[0])): tied for tied in owners.values()}
    result = load(model, values, strict=strict, assign=assign)
    for parameter, tied in before.items():
        _tie_again(parameter, tied)
    attach(model, missing)
    return result


def _add_tied_names(model: nn.Module, state: dict[str, Any]) -> None:
    """Add the other names of tied tensors, of which safetensors and Hugging Face store one."""
    names: dict[int, list[str]] = {}
    for key, tensor in _tensors_of(model):
        names.setdefault(id(tensor), []).append(key)
    for tied in names.values():
        for known in [key for key in tied if key in state][:1]:
            for key in tied:
                state.setdefault(key, state[known])
                if f"{known}_mask" in state:
                    state.setdefault(f"{key}_mask", state[f"{known}_mask"])


def _take_missing_masks(model: nn.Module, state: dict[str, Any], owners: Mapping[str, list[Owner]]) -> Masks:
    """Check the masks in `state`, and return those that the model lacks, removed from `state`."""
    found: dict[int, tuple[str, Tensor]] = {}  # by parameter: tied tensors have one mask under several keys
    missing: set[str] = set()
    for module_name, module, tensor in parameters_of(model):
        key, masked = f"{module_name}.{tensor}_mask".lstrip("."), tensor in dict(masked_tensors(module))
        if key in state and (masked or not hasattr(module, f"{tensor}_mask")):
            mask = state[key] if masked else state.pop(key)
            name = layer_name(module_name, tensor)
            check_masks({name: mask}, owners)
            first, known = found.setdefault(id(leaf(module, tensor)), (name, mask))
            if mask is not known and not torch.equal(mask, known):
                raise ValueError(f"masks: expected one mask for the tied {first!r} and {name!r}; got two")
            missing |= set() if masked else {first}
    return {name: mask for name, mask in found.values() if name in missing}


def _lay_out(model: nn.Module, state: dict[str, Any], *, assign: bool) -> None:
    """Check the values for the tensors of `model`, and shard whole ones like the parameters that they are for."""
    for key, tensor in _tensors_of(model):
        if key in state:
            check_loadable(key, state[key], tensor, assign=assign)
            if not is_lazy(tensor) and state[key].shape == tensor.shape:
                state[key] = shard_like(state[key], tensor)


def _tensors_of(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield each name of each parameter and buffer, as in a state dict."""
    for name, module, tensor in parameters_of(model):
        yield f"{name}.{tensor}".lstrip("."), leaf(module, tensor)
    yield from model.named_buffers(remove_duplicate=False)


def _tie_again(parameter: int, owners: list[Owner]) -> None:
    """Let all owners of a tied parameter hold the last one that was assigned to any of them."""
    assigned = [leaf(*owner) for owner in owners if id(leaf(*owner)) != parameter]
    for module, tensor in owners if len(owners) > 1 and assigned else ():
        masked = dict(masked_tensors(module)).get(tensor)
        setattr(masked.home if masked else module, tensor, assigned[-1])


def without_wrappers(state: Mapping[str, Any], model: nn.Module) -> OrderedDict[str, Any]:
    """A copy of the state dict without the prefixes that wrappers put before every key of the model."""
    plain: OrderedDict[str, Any] = OrderedDict(state)
    names = [name for name, _ in (*model.named_parameters(), *model.named_buffers())]
    averaged = "n_averaged" in plain and "n_averaged" not in names
    if averaged and all(key.startswith("module.") for key in plain if key != "n_averaged"):
        del plain["n_averaged"]  # added by AveragedModel, a moving average of the weights
    for prefix in ("module.", "_orig_mod.", "module."):
        if _depth(plain, prefix) > _depth(names, prefix):
            plain = OrderedDict((key.removeprefix(prefix), value) for key, value in plain.items())
    if len(plain) and next(iter(plain)) in state and hasattr(state, "_metadata"):
        plain._metadata = state._metadata  # type: ignore[attr-defined]
    return plain


def _depth(keys: Collection[str], prefix: str) -> int:
    """How many times all keys begin with a prefix; a model may itself have a module of that name."""
    depth = 0
    while keys and all(key.startswith(prefix * (depth + 1)) for key in keys):
        depth += 1
    return depth


def rehearse(model: nn.Module, state: Mapping[str, Any], *, strict: bool) -> None:
    """Raise what `load` would raise, without changing the model.

    Raises:
        RuntimeError: keys are missing or unexpected, or values do not fit.
    """
    blank = {key: _blank(value) if isinstance(value, Tensor) else value for key, value in state.items()}
    with _without_memory(model):
        load(model, _like(state, blank), strict=strict)


def load(model: nn.Module, state: Mapping[str, Any], *, strict: bool, assign: bool = False) -> Any:
    """Load a state dict as ``load_state_dict`` does, which would check every key once for every module."""
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
    local = {**metadata.get(prefix[:-1], {}), **({"assign_to_params_buffers": True} if assign else {})}
    module._load_from_state_dict(state, prefix, local, True, keys.missing_keys, keys.unexpected_keys, errors)
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
    """Return other values with the metadata (versions of modules) of a state dict."""
    copied = type("StateDict", (dict,), {})(values)
    copied._metadata = getattr(state, "_metadata", None)
    return copied


@contextmanager
def _without_memory(model: nn.Module) -> Iterator[None]:
    """Put meta tensors in place of all tensors; at the end, restore everything that a state dict can change."""
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
