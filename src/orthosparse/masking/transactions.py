"""Changes of a model that take place as a whole or not at all.

`Drafts` keeps new weights aside until all of them are known; `undone_on_error` restores what a change that fails or is
interrupted has done so far.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from orthosparse.distributed import fsdp_owners, local_parts, restore_fsdp_owners
from orthosparse.hardware import workers

_BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}  # numpy has no bfloat16
_CONTAINERS = (dict, OrderedDict, list, set)  # that modules have as attributes, and change in place


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


class Saved:
    """Values of tensors, as they were before they were written to."""

    def __init__(self) -> None:
        self._entries: list[tuple[Tensor, tuple[Tensor, ...], Tensor]] = []  # tensor, indices, values; () for all
        self._data: list[tuple[nn.Parameter, Tensor]] = []

    def save(self, tensor: Tensor) -> None:
        """Save all values of a tensor."""
        (part,) = local_parts(tensor)
        self._entries.append((part.data, (), part.detach().clone()))

    def save_data(self, parameter: nn.Parameter) -> None:
        """Save which tensor is the data of a parameter, without a copy of its values."""
        self._data.append((parameter, parameter.data))

    def save_off(self, tensor: Tensor, mask: Tensor, start: float) -> None:
        """Save what `fill_off_` with the same arguments would overwrite."""
        part, kept = local_parts(tensor, mask)
        if part.is_meta:
            return
        lost = kept.to(part.device).logical_not().logical_and_(part.detach() != start)
        if not lost.dim() or 8 * lost.dim() * int(lost.count_nonzero()) > part.element_size() * lost.numel():
            self.save(tensor)  # the indices of these entries would take more memory
        else:
            indices = lost.nonzero(as_tuple=True)
            self._entries.append((part.data, indices, part.detach()[indices]))

    @torch.no_grad()
    def restore(self) -> None:
        """Write the values back."""
        for parameter, data in reversed(self._data):
            parameter.data = data
        for tensor, indices, values in reversed(self._entries):
            if indices:
                tensor[indices] = values
            else:
                tensor.copy_(values)


@contextmanager
def undone_on_error(model: nn.Module, optimizer: torch.optim.Optimizer | None = None) -> Iterator[Saved]:
    """If the block raises anything, an interrupt included, restore the model and the optimizer.

    Every module gets back its class, attributes, members and hooks, the optimizer its parameters and their state, and
    FSDP2 the modules that it gathers parameters into. Values of tensors are restored if the block has saved them. An
    interrupt during the undo is raised after it.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 2))
        >>> try:
        ...     with undone_on_error(model) as saved:
        ...         saved.save(model[0].weight)
        ...         _ = model[0].weight.data.fill_(torch.nan)
        ...         del model[0]
        ...         raise KeyboardInterrupt
        ... except KeyboardInterrupt:
        ...     print(model, model[0].weight.isnan().any().item())
        Sequential(
          (0): Linear(in_features=2, out_features=2, bias=True)
        ) False
    """
    modules = [(module, type(module), dict(vars(module))) for module in model.modules()]
    held = [value for _, _, attributes in modules for value in attributes.values() if type(value) in _CONTAINERS]
    groups: list[dict[str, Any]] = [] if optimizer is None else optimizer.param_groups
    held += [each for group in groups for each in (group, group["params"])]
    held += [] if optimizer is None else [groups, optimizer.state]
    # As few new objects as possible: the garbage collector goes through all of them, again and again.
    contents = [container.copy() if container else () for container in held]
    owners, saved = fsdp_owners(model), Saved()

    def undo() -> None:
        for module, kind, attributes in modules:
            if type(module) is not kind:
                module.__class__ = kind
            vars(module).clear()
            vars(module).update(attributes)
        for container, content in zip(held, contents, strict=True):
            _fill(container, content)
        restore_fsdp_owners(owners)
        saved.restore()

    try:
        yield saved
    except BaseException:
        try:
            undo()
        except KeyboardInterrupt:
            undo()
            raise
        raise


def _active(tensor: Tensor, mask: Tensor) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return flat indices of the entries on a mask, in int32 if that is large enough, and the entries."""
    indices = np.flatnonzero(mask.numpy())  # takes numpy half the time of indexing with the mask
    return indices.astype(np.int32) if mask.numel() < 2**31 else indices, _bits(tensor).reshape(-1)[indices]


def _bits(tensor: Tensor) -> npt.NDArray[Any]:
    return tensor.view(_BITS[tensor.element_size()]).numpy()


def _fill(container: Any, content: Any) -> None:
    container.clear()
    if isinstance(container, list):
        container.extend(content)
    else:
        container.update(content)
