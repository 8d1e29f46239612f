"""Other parameters and buffers in a model for the time of a block, and afterwards its very own again."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn


@contextmanager
def substituted(model: nn.Module, tensors: Mapping[str, Tensor]) -> Iterator[None]:
    """Substitute `tensors` for the parameters and buffers of these names in `model` while the block runs.

    A tensor that several modules hold (tied weights, a module registered under several names) is substituted in each
    of them, whichever of its names is given. However the block ends, every module then holds the object that it held
    before, and what the block registered is gone. `torch.func.functional_call` does not promise that: it visits a
    shared module once for each of its names, and puts back what it had substituted.

    Args:
        tensors: by name in `model`; what is not named stays.

    Raises:
        KeyError: a name that the model has not; nothing is substituted then.

    Example:
        >>> model = nn.Linear(1, 1, bias=False)
        >>> with substituted(model, {"weight": 3 * model.weight.detach()}):
        ...     isinstance(model.weight, nn.Parameter)
        False
        >>> isinstance(model.weight, nn.Parameter)
        True
    """
    own = {
        **dict(model.named_parameters(remove_duplicate=False)),
        **dict(model.named_buffers(remove_duplicate=False)),
    }
    others = {id(own[name]): tensor for name, tensor in tensors.items()}
    tables = [table for module in model.modules() for table in (module._parameters, module._buffers)]
    before = [dict(table) for table in tables]
    try:
        for table, held in zip(tables, before, strict=True):
            _fill(table, {key: others.get(id(tensor), tensor) for key, tensor in held.items()})
        yield
    finally:
        for table, held in zip(tables, before, strict=True):
            _fill(table, held)


def _fill(table: dict[str, Any], held: Mapping[str, Any]) -> None:
    """Let `table` hold this, in this order."""
    if list(table.keys()) != list(held):
        table.clear()
    for key, tensor in held.items():  # one by one: a scripted module's table knows no update
        table[key] = tensor
