"""Checks of state dicts, their entries and the paths of their files, with errors as in `checks`."""

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import nn

from orthosparse.checks import describe, is_dense


def check_state(state: Mapping[str, Any], name: str = "state") -> Mapping[str, Any]:
    """Return `state`; raise TypeError unless it is a mapping whose keys are strings.

    Example:
        >>> check_state("model.pt")
        Traceback (most recent call last):
        ...
        TypeError: state: expected a state dict; got 'model.pt' (str): torch.load and safetensors read one from a file
    """
    if isinstance(state, str | PathLike):
        hint = "torch.load and safetensors read one from a file"
        raise TypeError(f"{name}: expected a state dict; got {state!r} ({type(state).__name__}): {hint}")
    if isinstance(state, nn.Module):
        raise TypeError(f"{name}: expected a state dict; got {type(state).__name__}: its state_dict() returns one")
    if not isinstance(state, Mapping):
        raise TypeError(f"{name}: expected a state dict; got {describe(state)}")
    for key in state:
        if not isinstance(key, str):
            raise TypeError(f"{name}: expected strings for keys; got {key!r} ({type(key).__name__})")
    return state


def check_weights(state: Mapping[str, Any], name: str = "state") -> Mapping[str, Any]:
    """Return `state`; raise TypeError unless it is a state dict itself, not a checkpoint that holds one or more.

    Example:
        >>> check_weights({"epoch": 3, "model": {}, "model_ema": {}})
        Traceback (most recent call last):
        ...
        TypeError: state: expected a state dict; got a checkpoint that holds some: pass its 'model' or 'model_ema'
    """
    check_state(state, name)
    held = [repr(key) for key, value in state.items() if isinstance(value, Mapping)]
    if held and not any(isinstance(value, torch.Tensor) for value in state.values()):
        raise TypeError(
            f"{name}: expected a state dict; got a checkpoint that holds some: pass its {' or '.join(held)}"
        )
    return state


def check_loadable(key: str, value: torch.Tensor, tensor: torch.Tensor, *, assign: bool) -> None:
    """Raise unless `value` can be copied into the model's `tensor` (or replace it, with `assign`).

    Raises:
        TypeError: `value` is not a dense tensor, or has another kind of numbers (real, integer, bool, complex).
        ValueError: `tensor` or `value` has no storage.
    """
    if not isinstance(value, torch.Tensor) or not is_dense(value):
        raise TypeError(f"state: expected a dense tensor for {key!r}; got {describe(value)}")
    if nn.parameter.is_lazy(tensor) or nn.parameter.is_lazy(value):
        return
    if _kind(value) != _kind(tensor):
        raise TypeError(f"state: expected {tensor.dtype} for {key!r}, or another type like it; got {value.dtype}")
    if value.is_meta and not tensor.is_meta:
        raise ValueError(f"state: expected tensors that lie in memory; {key!r} is on the meta device")
    if tensor.is_meta and not value.is_meta and not assign:
        raise ValueError(f"assign: expected True for a model on the meta device, as {key!r} is; got False")


def check_storable(key: str, value: object) -> None:
    """Raise unless an entry of a model's state dict is a tensor that can be written to a file.

    Raises:
        TypeError: it is not a tensor, or is sparse, nested or quantized, or has more than 8 bytes per number.
        ValueError: it has no storage, or is sharded.
    """
    if not isinstance(value, torch.Tensor) or not is_dense(value):
        raise TypeError(f"model: expected dense tensors in its state dict; {key!r} is {describe(value)}")
    if nn.parameter.is_lazy(value) or value.is_meta:
        raise ValueError(f"model: expected tensors that lie in memory; {key!r} is {describe(value)}")
    if value.element_size() > 8:
        raise TypeError(f"model: expected numbers of at most 8 bytes; {key!r} has {value.dtype}")
    if hasattr(value, "placements"):  # a DTensor, which costs more to import than the library
        raise ValueError(f"model: expected whole tensors; {key!r} is sharded")
    if hasattr(value, "__tensor_flatten__"):  # a wrapper of other tensors, such as 2:4 in torch's format
        raise TypeError(f"model: expected plain tensors in its state dict; {key!r} is a {type(value).__name__}")


def _kind(tensor: torch.Tensor) -> tuple[bool, bool, bool]:
    return tensor.is_floating_point(), tensor.is_complex(), tensor.dtype is torch.bool


def check_path(path: object) -> Path:
    """Return `path` as a Path that can name a file.

    Raises:
        TypeError: it is neither a string nor a path.
        ValueError: it is empty, or has a null character.

    Example:
        >>> check_path(3)
        Traceback (most recent call last):
        ...
        TypeError: path: expected the path of a file; got 3 (int)
    """
    if not isinstance(path, str | PathLike):
        came = f"a {type(path).__name__}: give the path first" if isinstance(path, nn.Module) else describe(path)
        raise TypeError(f"path: expected the path of a file; got {came}")
    checked = Path(path)
    if not checked.name or "\0" in str(checked):
        raise ValueError(f"path: expected the path of a file; got {str(path)!r}")
    return checked
