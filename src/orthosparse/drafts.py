"""New weights of a model, kept aside as their active entries until all of them are known, and then written at once."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from orthosparse.threads import workers

_BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}  # numpy has no bfloat16


def can_draft(parameter: nn.Parameter) -> bool:
    """Whether a parameter is a plain tensor in the memory of the CPU."""
    return type(parameter.data) is Tensor and parameter.device.type == "cpu"


class Drafts:
    """Sparse weights that are drawn, measured and kept beside the old ones, which do not change before `write`.

    They take the memory of their active entries, and that of one weight for each thread that draws.

    Example:
        >>> layer, drafts = nn.Linear(2, 2), Drafts()
        >>> before, mask = layer.weight.detach().clone(), torch.eye(2, dtype=torch.bool)
        >>> with drafts.beside(layer.weight) as keep:
        ...     _ = layer.weight.data.copy_(3 * torch.eye(2))
        ...     keep(mask)
        >>> torch.equal(layer.weight, before)
        True
        >>> drafts.write()
        >>> layer.weight.tolist()
        [[3.0, 0.0], [0.0, 3.0]]
    """

    def __init__(self) -> None:
        self._scratch = threading.local()
        # By the address of each tensor to write: the tensor, and indices and values of its active entries.
        self._kept: dict[int, tuple[Tensor, npt.NDArray[Any], npt.NDArray[Any]]] = {}

    @contextmanager
    def beside(self, parameter: nn.Parameter) -> Iterator[Callable[[Tensor], None]]:
        """Replace the values of a parameter with a copy while the block runs.

        Yields a function that keeps the values of the copy on a mask; `write` writes them to the parameter.
        """
        own = parameter.data
        parameter.data = self._copy(own)
        try:
            yield lambda mask: self._kept.update({own.data_ptr(): (own, *_active(parameter.data, mask))})
        finally:
            parameter.data = own

    def write(self) -> None:
        """Write all values that were kept, and zeros elsewhere. An interrupt is raised after the last write."""
        try:
            self._write_remaining()
        except KeyboardInterrupt:
            self._write_remaining()
            raise

    def _write_remaining(self) -> None:
        with workers([own.numel() for own, _, _ in self._kept.values()]) as parallel_map:
            for _ in parallel_map(self._write_one, [*self._kept]):
                pass

    def _write_one(self, address: int) -> None:
        own, indices, active = self._kept[address]
        bits = _bits(own)
        bits.fill(0)
        np.put(bits, indices, active)
        del self._kept[address]

    def _copy(self, own: Tensor) -> Tensor:
        """Copy into memory that is reused: the first access to new memory can cost more than the copy."""
        if not own.is_contiguous():
            return own.clone()
        size, scratch = own.numel() * own.element_size(), getattr(self._scratch, "bytes", None)
        if scratch is None or len(scratch) < size:
            scratch = self._scratch.bytes = torch.empty(size, dtype=torch.uint8, device="cpu")
        copy = scratch[:size].view(own.dtype).view_as(own)
        np.copyto(_bits(copy), _bits(own))  # torch would share the copy among threads
        return copy


def _active(tensor: Tensor, mask: Tensor) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return flat indices of the entries on a mask, in int32 if that is large enough, and the entries."""
    indices = np.flatnonzero(mask.numpy())  # takes numpy half the time of indexing with the mask
    return indices.astype(np.int32) if mask.numel() < 2**31 else indices, _bits(tensor).reshape(-1)[indices]


def _bits(tensor: Tensor) -> npt.NDArray[Any]:
    return tensor.view(_BITS[tensor.element_size()]).numpy()
