"""A loss or a gradient that is not finite: at which step, and in which layer it began."""

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
    """Find out why networks have stopped, for those of which it is not known yet."""
    stopped = state.records.stopped.tolist()
    for index, step in enumerate(stopped):
        if step >= 0 and index not in state.errors:
            state.errors[index] = _error_of(state, index, *divmod(step, len(state.loader)))


def _error_of(state: State, index: int, epoch: int, step: int) -> NonFiniteError:
    """Return what the network was seen to do at the step at which it stopped: its weights are those before that."""
    single = state.networks.as_single(state, index)
    position = single.epoch, single.step
    single.epoch, single.step = epoch, step
    seed_step(single)
    images, labels = targets(single, *next(iter(single.loader.epoch(epoch, step))))
    error = diagnose(single, images, labels, single.loader.count(step))
    single.epoch, single.step = position
    return error


def diagnose(state: State, images: Tensor, labels: Tensor, count: int) -> NonFiniteError:
    """Compute the gradients of a step again, watching every layer, and return the error that says what was seen.

    The state has a single network; its weights are not changed.
    """
    network: nn.Module = state.networks.network  # type: ignore[attr-defined]
    with _watching(network) as seen:
        losses, _ = gradients(state, images, labels, count)
    loss, norm = float(losses), float(state.networks.gradient_norms())
    layer = seen.get("gradient")
    place = f"epoch {state.epoch + 1}, step {state.step + 1} of {len(state.loader)}"
    what = f"the first gradient that is not finite is that of {layer}" if layer else "every single gradient is finite"
    message = f"training stopped at {place}: loss {loss:.4g}, gradient norm {norm:.4g}; {what}"
    cause = _cause(network, images, seen)
    message += f" ({cause})" if cause else ""
    message += ". Try a lower lr" if _finite(images) else ""
    return NonFiniteError(message, epoch=state.epoch, step=state.step, layer=layer)


def _cause(network: nn.Module, images: Tensor, seen: dict[str, str]) -> str | None:
    """Return what was not finite before any gradient was."""
    if not _finite(images):
        return "the images are not finite"
    for name, parameter in network.named_parameters():
        if not _finite(parameter):
            return f"the weights of {plain_name(name)} are not finite"
    return f"the output of {seen['output']} is not finite" if "output" in seen else None


@contextmanager
def _watching(network: nn.Module) -> Iterator[dict[str, str]]:
    """Note the first module whose output, and the first parameter whose gradient, is not finite."""
    seen: dict[str, str] = {}
    hooks: list[Any] = []
    for name, module in plain_modules(network):
        hooks.append(module.register_forward_hook(partial(_note_output, seen, name or "the model")))
    for name, parameter in network.named_parameters():
        if parameter.requires_grad:
            note = partial(_note_gradient, seen, plain_name(name))
            hooks.append(parameter.register_post_accumulate_grad_hook(note))
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


def _note_output(seen: dict[str, str], name: str, module: nn.Module, inputs: Any, output: Any) -> None:
    del module, inputs  # a hook's signature
    if isinstance(output, Tensor) and not _finite(output):
        seen.setdefault("output", name)


def _note_gradient(seen: dict[str, str], name: str, parameter: Tensor) -> None:
    if parameter.grad is not None and not _finite(parameter.grad):
        seen.setdefault("gradient", name)


def _finite(tensor: Tensor) -> bool:
    local = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return bool(torch.isfinite(local).all())
