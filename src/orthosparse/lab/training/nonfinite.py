"""Finds where a loss or a gradient became infinite or NaN: the step and the layer."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from orthosparse.lab.training.state import NonFiniteError, State
from orthosparse.lab.training.step import gradients, seed_step, targets
from orthosparse.layers import plain_modules, plain_name


def find_errors(state: State) -> None:
    """Find the errors of networks that have stopped and have none yet."""
    stopped = state.records.stopped.tolist()
    for index, step in enumerate(stopped):
        if step >= 0 and index not in state.errors:
            state.errors[index] = _error_of(state, index, *divmod(step, len(state.loader)))


def _error_of(state: State, index: int, epoch: int, step: int) -> NonFiniteError:
    """Return the error of the step at which a network stopped, which is repeated: its weights are those before it."""
    single = state.networks.as_single(state, index)
    position = single.epoch, single.step
    single.epoch, single.step = epoch, step
    seed_step(single)
    images, labels = targets(single, *next(iter(single.loader.epoch(epoch, step))))
    error = diagnose(single, images, labels, single.loader.count(step))
    single.epoch, single.step = position
    return error


def diagnose(state: State, images: Tensor, labels: Tensor, count: int) -> NonFiniteError:
    """Compute the gradients of a step again with hooks on every layer, and return the error.

    The state has a single network; its weights are not changed.
    """
    network: nn.Module = state.networks.network  # type: ignore[attr-defined]
    with _hooks(network) as nonfinite:
        losses, _ = gradients(state, images, labels, count)
    loss, norm = float(losses), float(state.networks.gradient_norms())
    layer = nonfinite.get("gradient")
    position = f"epoch {state.epoch + 1}, step {state.step + 1} of {len(state.loader)}"
    what = f"the first gradient that is not finite is that of {layer}" if layer else "every single gradient is finite"
    message = f"training stopped at {position}: loss {loss:.4g}, gradient norm {norm:.4g}; {what}"
    cause = _cause(network, images, nonfinite)
    message += f" ({cause})" if cause else ""
    message += ". Try a lower lr" if _finite(images) else ""
    return NonFiniteError(message, epoch=state.epoch, step=state.step, layer=layer)


def _cause(network: nn.Module, images: Tensor, nonfinite: dict[str, str]) -> str | None:
    """Return the first thing that was not finite before the gradients."""
    if not _finite(images):
        return "the images are not finite"
    for name, parameter in network.named_parameters():
        if not _finite(parameter):
            return f"the weights of {plain_name(name)} are not finite"
    return f"the output of {nonfinite['output']} is not finite" if "output" in nonfinite else None


@contextmanager
def _hooks(network: nn.Module) -> Iterator[dict[str, str]]:
    """Note the first module whose output, and the first parameter whose gradient, is not finite."""
    nonfinite: dict[str, str] = {}
    hooks: list[Any] = []
    for name, module in plain_modules(network):
        hooks.append(module.register_forward_hook(partial(_note_output, nonfinite, name or "the model")))
    for name, parameter in network.named_parameters():
        if parameter.requires_grad:
            note = partial(_note_gradient, nonfinite, plain_name(name))
            hooks.append(parameter.register_post_accumulate_grad_hook(note))
    try:
        yield nonfinite
    finally:
        for hook in hooks:
            hook.remove()


def _note_output(nonfinite: dict[str, str], name: str, module: nn.Module, inputs: Any, output: Any) -> None:
    del module, inputs  # a hook's signature
    if isinstance(output, Tensor) and not _finite(output):
        nonfinite.setdefault("output", name)


def _note_gradient(nonfinite: dict[str, str], name: str, parameter: Tensor) -> None:
    if parameter.grad is not None and not _finite(parameter.grad):
        nonfinite.setdefault("gradient", name)


def _finite(tensor: Tensor) -> bool:
    local = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return bool(torch.isfinite(local).all())
