"""Run a model with other tensors or in another mode for the duration of a block, and restore it afterwards.

Also copies what a model is called with, which it may change in place.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn


@contextmanager
def substituted(model: nn.Module, tensors: Mapping[str, Tensor]) -> Iterator[None]:
    """Substitute `tensors` for the parameters and buffers of these names in `model` while the block runs.

    A tensor that several modules hold (tied weights, a module registered under several names) is substituted in all of
    them, whichever of its names is given. After the block, even if it raises, every module holds the same objects as
    before, and what the block registered is removed. `torch.func.functional_call` does not guarantee this: it visits a
    shared module once for each of its names, and restores the tensor that it had substituted.

    Args:
        tensors: by name in `model`; all others stay.

    Raises:
        KeyError: `model` does not have a name; nothing is substituted.

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
    """Make `table` equal to `held`, in the same order."""
    if list(table.keys()) != list(held):
        table.clear()
    for key, tensor in held.items():  # one by one: the table of a scripted module has no update
        table[key] = tensor


def copied(value: Any) -> Any:
    """Return `value` with copies of its tensors, also of those in tuples, lists and dicts.

    Example:
        >>> x = torch.zeros(2)
        >>> copied({"x": x})["x"].add_(1), x
        (tensor([1., 1.]), tensor([0., 0.]))
    """
    if isinstance(value, Tensor):
        return value.clone()
    if type(value) in (tuple, list):
        return type(value)(map(copied, value))
    return {key: copied(each) for key, each in value.items()} if type(value) is dict else value


def frozen_state(model: nn.Module) -> dict[str, Tensor]:
    """Return detached parameters and copies of the buffers, to be substituted in the model."""
    parameters = {name: value.detach() for name, value in model.named_parameters()}
    return parameters | {name: value.detach().clone() for name, value in model.named_buffers()}


@contextmanager
def preserve(model: nn.Module, device: torch.device | None = None) -> Iterator[None]:
    """Restore after the block, even if it raises: mode, attributes and buffers of all modules, and global generators.

    Parameters are not restored: run the model with other tensors in the block (`substituted`, `with_tensors`).

    Args:
        device: device of the inputs of the model, if it may differ from that of its tensors.
    """
    modules = list(model.modules())
    attributes = [dict(vars(module)) for module in modules]
    lists = [(held, list(held)) for before in attributes for held in before.values() if isinstance(held, list)]
    buffers = [dict(module._buffers) for module in modules]
    devices = _accelerators(model, device)
    kind = {"device_type": devices[0].type} if devices else {}
    try:
        with torch.random.fork_rng([device.index for device in devices], **kind), torch.enable_grad():
            for module in modules:
                vars(module).pop("_compiled_call_impl", None)  # compiled graphs cannot be differentiated twice
                _stop_listening(module)
            yield
    finally:
        for module, before, held in zip(modules, attributes, buffers, strict=True):
            vars(module).clear()
            vars(module).update(before)
            module._buffers.clear()
            module._buffers.update(held)
        for each, content in lists:  # recurrent layers keep the tensors of their last call in a list
            each[:] = content


def _stop_listening(module: nn.Module) -> None:
    """Remove the listener of a mask or a compact layer, so that a Rewirer does not count the gradients of the block.

    Their classes have the default None; a `listener` of any other class is an ordinary attribute.
    """
    if getattr(type(module), "listener", ...) is None:
        vars(module).pop("listener", None)


def seed_generators(model: nn.Module, seed: int, device: torch.device | None = None) -> None:
    """Seed the global generators that dropout on the model's devices draws from; only inside `preserve`."""
    torch.default_generator.manual_seed(seed)
    for each in _accelerators(model, device):
        with torch.accelerator.device_index(each.index):
            torch.get_device_module(each).manual_seed(seed)


@contextmanager
def with_tensors(model: nn.Module, tensors: Mapping[str, Tensor]) -> Iterator[None]:
    """Substitute `tensors`, by parameter or buffer name, in `model` while the block runs.

    Run the backward pass inside the block too, because checkpointed layers are recomputed in it.
    """
    with without_cudnn(model), substituted(model, tensors):
        yield


@contextmanager
def without_cudnn(model: nn.Module) -> Iterator[None]:
    """Run recurrent models without cuDNN.

    cuDNN would move substituted weights into its own memory, and has no second derivative for them.
    """
    before = torch.backends.cudnn.enabled
    torch.backends.cudnn.enabled = before and not any(isinstance(module, nn.RNNBase) for module in model.modules())
    try:
        yield
    finally:
        torch.backends.cudnn.enabled = before


def _accelerators(model: nn.Module, device: torch.device | None) -> list[torch.device]:
    devices = {tensor.device for tensor in (*model.parameters(), *model.buffers())} | ({device} if device else set())
    return sorted((device for device in devices if device.type not in ("cpu", "meta")), key=str)
