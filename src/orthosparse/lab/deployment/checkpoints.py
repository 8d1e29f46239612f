"""The weights of a trained network, from whatever holds them: a run's folder, a state dict, a compact file."""

import zipfile
from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import nn

from orthosparse import load_compact, load_sparse
from orthosparse.lab.training import checkpoint

_INSIDE = ("state_dict", "model")  # where programs of others keep the state dict in what they save


def run_in(path: Path) -> dict[str, Any] | None:
    """Return the description of the run whose checkpoints lie in a folder; None if `path` is no folder.

    Raises:
        ValueError: no checkpoint of one network there, or all are damaged.
    """
    return dict(_tree_in(path)["settings"]["run"]) if path.is_dir() else None


def classes_in(folder: Path, network: nn.Module) -> int | None:
    """Return the number of classes of a run: the length of its last parameter, named as in a network of its kind."""
    *_, (last, _) = network.named_parameters()
    found = _tree_in(folder)["model"].get(last)
    return None if found is None or not found.dim() else len(found)


def check_there(path: Path) -> None:
    """Raise FileNotFoundError if there is nothing at `path`."""
    if not path.exists():
        raise FileNotFoundError(f"checkpoint: expected a file or a folder at {path}; there is none")


def load_weights(model: nn.Module, path: Path) -> None:
    """Load weights and masks into a model.

    Args:
        path: the folder of `orthosparse train`; a file of `save_compact`; or a state dict, as safetensors or as
            ``torch.save`` wrote it, which is read without executing code.

    Raises:
        ValueError: none of these, or weights of another model, which is unchanged.
        FileNotFoundError: nothing there.
    """
    check_there(path)
    if path.is_file() and _is_compact(path):
        load_compact(path, model)
        return
    state = _tree_in(path)["model"] if path.is_dir() else _state_in(path)
    try:
        load_sparse(model, state)
    except (ValueError, TypeError, RuntimeError) as error:
        raise ValueError(f"checkpoint: {path} does not fit the model: {error}") from error


def _tree_in(folder: Path) -> dict[str, Any]:
    tree = checkpoint.load(folder, {"settings": dict}, {"model": dict})
    if tree is None:
        raise ValueError(f"checkpoint: expected the folder of a run; {folder} holds no checkpoint")
    return dict(tree)


def _is_compact(path: Path) -> bool:
    try:
        with safe_open(path, framework="pt") as file:
            return "orthosparse" in (file.metadata() or {})
    except (SafetensorError, OSError):
        # Cut or changed: its first bytes show what it was, and load_compact says what is wrong.
        with path.open("rb") as file:
            return b'"orthosparse":"{' in file.read(200)


def _state_in(path: Path) -> Mapping[str, Any]:
    try:
        if _is_pickle(path):
            found: Any = torch.load(path, map_location="cpu", weights_only=True)
        else:
            found = safetensors.torch.load_file(path)
    except (SafetensorError, UnpicklingError, RuntimeError, EOFError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"checkpoint: expected a state dict, as safetensors or torch.save; {path}: {error}") from error
    for name in _INSIDE:
        if isinstance(found, Mapping) and isinstance(found.get(name), Mapping):
            found = found[name]
    if not isinstance(found, Mapping):
        raise ValueError(f"checkpoint: expected a state dict in {path}; got {type(found).__name__}")
    return found


def _is_pickle(path: Path) -> bool:
    with path.open("rb") as file:
        return zipfile.is_zipfile(path) or file.read(1) == b"\x80"
