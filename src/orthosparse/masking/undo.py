"""Undo what a change has done to a model and its optimizer, if it fails or is interrupted halfway."""

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from orthosparse.distributed import fsdp_owners, local_parts, restore_fsdp_owners

_CONTAINERS = (dict, OrderedDict, list, set)  # that modules have as attributes, and change in place


class Saved:
    """Values of tensors, as they were before they were written to."""

    def __init__(self) -> None:
        self._entries: list[tuple[Tensor, tuple[Tensor, ...], Tensor]] = []  # tensor, indices, values; () for all

    def save(self, tensor: Tensor) -> None:
        """Save all values of a tensor."""
        (part,) = local_parts(tensor)
        self._entries.append((part.data, (), part.detach().clone()))

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
        for tensor, indices, values in reversed(self._entries):
            if indices:
                tensor[indices] = values
            else:
                tensor.copy_(values)


@contextmanager
def undone_on_error(model: nn.Module, optimizer: torch.optim.Optimizer | None = None) -> Iterator[Saved]:
    """If the block raises anything, an interrupt included, restore the model and the optimizer.

    Every module gets back its class, attributes, members and hooks, the optimizer its parameters and their state, and
    FSDP2 the modules that it gathers parameters into. Values of tensors are restored if the block has saved them.

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
    contents = [(container, container.copy()) for container in held]
    owners, saved = fsdp_owners(model), Saved()
    try:
        yield saved
    except BaseException:
        for module, kind, attributes in modules:
            if type(module) is not kind:
                module.__class__ = kind
            vars(module).clear()
            vars(module).update(attributes)
        for container, content in contents:
            _fill(container, content)
        restore_fsdp_owners(owners)
        saved.restore()
        raise


def _fill(container: Any, content: Any) -> None:
    container.clear()
    if isinstance(container, list):
        container.extend(content)
    else:
        container.update(content)
