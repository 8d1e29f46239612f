"""Checkpoints that survive a kill at any moment: nested state as safetensors, and a JSON file with its hash.

A folder holds the newest two; only one process writes to it at a time.
"""

import errno
import fcntl
import hashlib
import json
import logging
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from orthosparse.files import write_atomically

Parts = Mapping[str, type | tuple[type, ...]]  # of a tree, by name, with their types

_log = logging.getLogger(__name__)
LOCK = ".lock"
_UNSUPPORTED = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)  # of file systems without locks
_KEPT = 2
_FORMAT = 1
_DAMAGED = ".json.damaged"  # the suffix to which a damaged one is renamed


def save(folder: Path, steps: int, tree: Any) -> Path:
    """Write `tree` (see `flatten`) as the checkpoint after `steps` steps, and remove all but the newest two.

    Its tensors are on the CPU and share no memory. They are written first; then the JSON, which holds their hash and
    one of itself (the seal). A checkpoint exists once its JSON does.
    """
    tensors, plain = flatten(tree)
    data = safetensors.torch.save({path: tensor.contiguous() for path, tensor in tensors.items()})
    path = folder / f"checkpoint-{steps:09d}.json"
    body = {"format": _FORMAT, "steps": steps, "sha256": hashlib.sha256(data).hexdigest(), "state": plain}
    write_atomically(path.with_suffix(".safetensors"), data)
    try:
        write_atomically(path, json.dumps({**body, "seal": _seal(body)}).encode())
    except OSError:
        path.with_suffix(".safetensors").unlink()  # useless without its JSON, and the disk may be full
        raise
    for old in _generations(folder)[_KEPT:]:
        old.unlink()
        old.with_suffix(".safetensors").unlink(missing_ok=True)
    return path


def load(folder: Path, parts: Parts | None = None, kind_parts: Parts | None = None) -> Any | None:
    """Return the tree of the newest whole checkpoint in `folder`, or None if there is none.

    A damaged one is reported in the log and renamed, and the one before it is used. One of another version is left as
    it is, for that version.

    Args:
        parts: that every tree has, with their types; a tree without them is damaged. None accepts any tree.
        kind_parts: that a tree of this kind of run has besides. A tree without them is that of another kind, and is
            left as it is.

    Raises:
        ValueError: there are checkpoints, and all of them are damaged; or the newest whole one is that of another
            version or of another kind of run.
    """
    for path in _generations(folder):
        try:
            tree = _read(path, parts or {})
        except _OtherFormatError:
            raise
        except (OSError, ValueError, KeyError, TypeError, RecursionError, SafetensorError) as error:
            _log.warning("%s is damaged (%s); trying the checkpoint before it", path, error)
            path.replace(path.with_suffix(_DAMAGED))
            continue
        if lacking := _lacking(tree, kind_parts or {}):
            raise ValueError(
                f"{folder}: {path.name} is of another kind of run, as it has no {lacking}: "
                "train saves one network, together a stack of them"
            )
        return tree
    if has_checkpoint(folder):
        raise ValueError(f"{folder}: every checkpoint in it is damaged; remove it, or choose another, to start again")
    return None


def has_checkpoint(folder: Path) -> bool:
    """Return whether `folder` holds a checkpoint, including damaged and renamed ones."""
    return any(folder.glob("checkpoint-*.json")) or any(folder.glob(f"checkpoint-*{_DAMAGED}"))


def tidy(folder: Path) -> None:
    """Remove the files of interrupted writes: drafts, and tensors without their JSON."""
    for draft in folder.glob(".*.tmp"):
        draft.unlink()
    for tensors in folder.glob("checkpoint-*.safetensors"):
        if not tensors.with_suffix(".json").exists() and not tensors.with_suffix(_DAMAGED).exists():
            tensors.unlink()


class _OtherFormatError(ValueError):
    """A whole checkpoint has the format of another version."""


def _generations(folder: Path) -> list[Path]:
    return sorted(folder.glob("checkpoint-*.json"), reverse=True)


def _read(path: Path, parts: Parts) -> Any:
    record = json.loads(path.read_bytes())
    if not isinstance(record, dict) or record.pop("seal", None) != _seal(record):
        raise ValueError("its JSON does not match its seal")
    if (found := record["format"]) != _FORMAT:
        raise _OtherFormatError(
            f"{path}: expected format {_FORMAT}; got {found!r}: resume with the version that wrote it"
        )
    data = path.with_suffix(".safetensors").read_bytes()
    if hashlib.sha256(data).hexdigest() != record["sha256"]:
        raise ValueError("its tensors do not match their hash")
    tree = unflatten(safetensors.torch.load(data), record["state"])
    if lacking := _lacking(tree, parts):
        raise ValueError(f"it has no {lacking}")
    return tree


def _lacking(tree: Any, parts: Parts) -> str | None:
    """Return the first of `parts` that `tree` does not have; None if it has all."""
    for name, kind in parts.items():
        if not isinstance(tree, dict) or not isinstance(tree.get(name), kind):
            return name
    return None


def _seal(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


_TENSOR, _PAIRS, _TUPLE = "$tensor", "$pairs", "$tuple"
_LEAVES = (str, int, float, bool, type(None))


def flatten(tree: Any) -> tuple[dict[str, Tensor], Any]:
    """Return the tensors of `tree` by path, and the rest as a JSON value that names them.

    Supported are dictionaries (with any plain keys), lists, tuples, tensors, numbers, strings, booleans and None.

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
    """Return the tree that `flatten` returned these tensors and this value for.

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
    """Return `tree` with copies of all tensors (unsharded), on `device` unless that is None."""
    tensors, plain = flatten(tree)
    return unflatten({path: _copy(tensor, device) for path, tensor in tensors.items()}, plain)


def _copy(tensor: Tensor, device: torch.device | str | None) -> Tensor:
    whole = tensor.detach()
    whole = whole.full_tensor() if hasattr(whole, "full_tensor") else whole
    return whole.to(device or whole.device, copy=True)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a folder for this process inside the block; create it if it does not exist.

    The operating system releases the lock when the process ends, however that happens.

    Raises:
        ValueError: another process is using it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / LOCK
    descriptor = _lock(path, f"out: {folder} is in use")
    try:
        os.truncate(descriptor, 0)
        os.write(descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode())
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def _lock(path: Path, in_use: str) -> int:
    """Return the descriptor of the locked file at `path`."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 300).decode(errors="replace") or "another process"
            os.close(descriptor)
            raise ValueError(f"{in_use} by {holder}; wait for it to end, or choose another folder") from None
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                os.close(descriptor)
                raise OSError(error.errno, error.strerror, str(path)) from error
            _log.warning("%s cannot be locked (%s); let no other process use it", path.parent, error.strerror)
            return descriptor
        if _is_at(descriptor, path):
            return descriptor
        os.close(descriptor)  # its holder has just removed it: create it again


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
