"""save_compact and load_compact: a sparse model in a safetensors file of the size of its active weights."""

import hashlib
import json
from collections.abc import Mapping
from os import PathLike
from typing import Any

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor, nn

from orthosparse.archives.contents import contents_of, state_in
from orthosparse.checks import check_flag, check_model, named_on_error
from orthosparse.files import write_atomically
from orthosparse.layers import unwrapped
from orthosparse.masking import load_sparse
from orthosparse.state_checks import check_path

_NAME = "orthosparse"  # of the description in the header's metadata
_CHECKSUM = "sha256"
_BLANK = "0" * 64  # in place of the checksum while it is computed
# What the reader of the format raises for a header that was forged.
_ERRORS = (SafetensorError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RuntimeError)


def save_compact(model: nn.Module, path: str | PathLike[str]) -> None:
    """Write the parameters and buffers of a sparse model to a safetensors file of the size of its active weights.

    For each tensor that has a mask, or that is mostly zero, the file holds the active entries and a code for their
    positions, a few bits each. Tied tensors are stored once; all other tensors are stored as they are. Masked layers
    and modules that hold only active weights give the same file. The file at `path` is written as a whole or not at
    all, even if the call is interrupted.

    Raises:
        TypeError: an argument has the wrong type, or the state dict of the model holds something other than dense
            tensors.
        ValueError: a tensor is on the meta device or sharded.
        OSError: the file cannot be written.

    Example:
        >>> import orthosparse, tempfile, torch
        >>> model, other = nn.Sequential(nn.Linear(64, 64)), nn.Sequential(nn.Linear(64, 64))
        >>> _ = orthosparse.sparsify(model, 0.1, generator=torch.Generator().manual_seed(0))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_compact(model, f"{folder}/model.safetensors")
        ...     load_compact(f"{folder}/model.safetensors", other)
        >>> torch.equal(model[0].weight, other[0].weight)
        True
    """
    model, path = unwrapped(check_model(model)), check_path(path)
    write_atomically(path, to_bytes(*contents_of(model)))


def load_compact(path: str | PathLike[str], model: nn.Module, *, assign: bool = False) -> None:
    """Load a file that `save_compact` wrote into a model of the same architecture, as `load_sparse` does.

    Layers without a mask get one. Masked layers take the new masks and weights, and modules that hold only active
    weights take the new ones if their number is the same. The file contains no code, and nothing in it is executed. If
    the call raises, the model is unchanged.

    Args:
        path: path of the file.
        assign: as in ``load_state_dict``; needed for a model on the meta device.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: the file is damaged, was not written by `save_compact`, or does not fit the model.
        OSError: the file cannot be read.
    """
    path, model = check_path(path), unwrapped(check_model(model))
    check_flag(assign, "assign")
    data = path.read_bytes()
    with named_on_error("path", f"{path} cannot be loaded into this model"):
        load_sparse(model, state_in(*from_bytes(data), model), assign=assign)


def to_bytes(tensors: Mapping[str, Tensor], description: Mapping[str, Any]) -> bytes:
    """Return the file; the same tensors and description make the same bytes.

    Raises:
        ValueError: a type of numbers that safetensors has no name for.
    """
    text = json.dumps({_CHECKSUM: _BLANK, **description}, separators=(",", ":"))
    try:
        data = safetensors.torch.save(dict(tensors), {_NAME: text})
    except (SafetensorError, KeyError) as error:
        raise ValueError(f"expected tensors that safetensors can store ({error})") from error
    # The description stands first in the header, and the checksum first in the description.
    return data.replace(_BLANK.encode(), hashlib.sha256(data).hexdigest().encode(), 1)


def from_bytes(data: bytes) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors and the description of a file.

    Raises:
        ValueError: it is no such file, or not all of it, or a byte has changed.
    """
    description = _description(data)
    checksum = description.pop(_CHECKSUM, None)
    if not isinstance(checksum, str) or len(checksum) != len(_BLANK):
        raise ValueError("expected a file that save_compact wrote; got none")
    blank = data.replace(checksum.encode(), _BLANK.encode(), 1)
    if hashlib.sha256(blank).hexdigest() != checksum:
        raise ValueError("expected a whole file; it was cut or changed, its checksum is another")
    try:
        return safetensors.torch.load(data), description
    except _ERRORS as error:
        raise ValueError(f"expected a file that save_compact wrote ({error})") from error


def _description(data: bytes) -> dict[str, Any]:
    size = int.from_bytes(data[:8], "little")
    try:
        description = json.loads(json.loads(data[8 : 8 + size])["__metadata__"][_NAME])
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError("expected a file that save_compact wrote, whole and unchanged; got another") from None
    if not isinstance(description, dict):
        raise ValueError("expected a file that save_compact wrote; got another")
    return description
