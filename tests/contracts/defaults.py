"""Defaults of torch's that a function which knows its device and dtype must not read."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def other_defaults() -> Iterator[None]:
    """Another default device (one without storage: whatever lands there cannot be used) and another default dtype."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device("meta"):
            yield
    finally:
        torch.set_default_dtype(before)
