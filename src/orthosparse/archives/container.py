"""A safetensors file with a description in its header and a checksum of every byte."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

_NAME = "orthosparse"  # of the description in the header's metadata
_CHECKSUM = "sha256"
_BLANK = "0" * 64  # stands for the checksum while it is computed
# What the reader of the format raises for a header that was forged.
_ERRORS = (SafetensorError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RuntimeError)


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
        found = json.loads(json.loads(data[8 : 8 + size])["__metadata__"][_NAME])
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError("expected a file that save_compact wrote, whole and unchanged; got another") from None
    if not isinstance(found, dict):
        raise ValueError("expected a file that save_compact wrote; got another")
    return found
