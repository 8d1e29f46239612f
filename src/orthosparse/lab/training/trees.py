"""Nested state as a flat mapping of tensors and a JSON value, and back: what a checkpoint needs instead of pickle."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

_TENSOR, _PAIRS, _TUPLE = "$tensor", "$pairs", "$tuple"
_LEAVES = (str, int, float, bool, type(None))


def flatten(tree: Any) -> tuple[dict[str, Tensor], Any]:
    """Return the tensors of `tree` by path, and the rest as a JSON value that names them.

    Dictionaries (with any plain keys), lists, tuples, tensors, numbers, strings, booleans and None are understood.

    Raises:
        TypeError: anything else, with its path.

    Example:
        >>> flatten({"step": 3, "sums": {0: torch.zeros(2)}})
        ({'sums/0': tensor([0., 0.])}, {'step': 3, 'sums': {'$pairs': [[0, {'$tensor': 'sums/0'}]]}})
    """
    tensors: dict[str, Tensor] = {}
    return tensors, _strip(tree, (), tensors)


def _strip(node: Any, path: tuple[str, ...], tensors: dict[str, Tensor]) -> Any:
    if isinstance(node, Tensor):
        tensors["/".join(path)] = node
        return {_TENSOR: "/".join(path)}
    if isinstance(node, Mapping):
        items = [(key, _strip(value, (*path, str(key)), tensors)) for key, value in node.items()]
        if all(isinstance(key, str) and not key.startswith("$") for key, _ in items):
            return dict(items)
        return {_PAIRS: [[key, value] for key, value in items]}
    if isinstance(node, list | tuple):
        parts = [_strip(value, (*path, str(index)), tensors) for index, value in enumerate(node)]
        return parts if isinstance(node, list) else {_TUPLE: parts}
    if isinstance(node, _LEAVES):
        return node
    raise TypeError(f"{'/'.join(path)}: expected tensors and plain values; got {type(node).__name__}")


def unflatten(tensors: Mapping[str, Tensor], plain: Any) -> Any:
    """Return what `flatten` was given.

    Example:
        >>> unflatten(*flatten({"betas": (0.9, 0.999), "x": torch.ones(1)}))
        {'betas': (0.9, 0.999), 'x': tensor([1.])}
    """
    if isinstance(plain, list):
        return [unflatten(tensors, part) for part in plain]
    if not isinstance(plain, dict):
        return plain
    if _TENSOR in plain:
        return tensors[plain[_TENSOR]]
    if _PAIRS in plain:
        return {key: unflatten(tensors, value) for key, value in plain[_PAIRS]}
    if _TUPLE in plain:
        return tuple(unflatten(tensors, part) for part in plain[_TUPLE])
    return {key: unflatten(tensors, value) for key, value in plain.items()}


def copied(tree: Any, device: torch.device | str | None = None) -> Any:
    """Return `tree` with every tensor copied (whole, if it was sharded), to `device` if one is given."""
    tensors, plain = flatten(tree)
    return unflatten({path: _copy(tensor, device) for path, tensor in tensors.items()}, plain)


def _copy(tensor: Tensor, device: torch.device | str | None) -> Tensor:
    whole = tensor.detach()
    whole = whole.full_tensor() if hasattr(whole, "full_tensor") else whole
    return whole.to(device or whole.device, copy=True)
