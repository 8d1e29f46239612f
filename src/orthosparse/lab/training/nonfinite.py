"""A loss or a gradient that is not finite: at which step, and in which layer it began."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from orthosparse.lab.training.state import State
from orthosparse.lab.training.step import gradients
from orthosparse.parametrized import plain_modules, plain_name


class NonFiniteError(ArithmeticError):
    """Training met a loss or a gradient that is not finite.

    Attributes:
        epoch, step: where, counted from 0; the step within the epoch.
        layer: the parameter whose gradient was the first not to be finite, in the order of the backward pass; None
            where all were finite.
    """

    def __init__(self, message: str, *, epoch: int, step: int, layer: str | None) -> None:
        super().__init__(message)
        self.epoch, self.step, self.layer = epoch, step, layer


def first_bad(values: Tensor) -> int | None:
    """Return the first step of a tally [3, steps] whose loss or gradient norm is not finite, or None.

    Example:
        >>> first_bad(torch.tensor([[1.0, 2.0, 2.0], [1.0, torch.inf, 1.0], [0.0, 0.0, 0.0]]))
        1
    """
    bad = ~torch.isfinite(values[:2]).all(0)
    return int(bad.nonzero()[0]) if bad.any() else None


def diagnose(state: State, images: Tensor, labels: Tensor, count: int) -> NonFiniteError:
    """Compute the gradients of a step again, watching every layer, and return the error that says what was seen.

    The weights must be those from before the step; they are not changed.
    """
    state.tally.reset()
    with _watching(state.network) as seen:
        gradients(state, images, labels, count)
    loss, norm = state.tally.values[:2, 0].tolist()
    layer = seen.get("gradient")
    place = f"epoch {state.epoch + 1}, step {state.step + 1} of {len(state.loader)}"
    what = f"the first gradient that is not finite is that of {layer}" if layer else "every single gradient is finite"
    message = f"training stopped at {place}: loss {loss:.4g}, gradient norm {norm:.4g}; {what}"
    cause = _cause(state, images, seen)
    message += f" ({cause})" if cause else ""
    return NonFiniteError(f"{message}. Try a lower lr", epoch=state.epoch, step=state.step, layer=layer)


def _cause(state: State, images: Tensor, seen: dict[str, str]) -> str | None:
    """Return what was not finite before any gradient was."""
    if not _finite(images):
        return "the images are not finite"
    for name, parameter in state.network.named_parameters():
        if not _finite(parameter):
            return f"the weights of {plain_name(name)} are not finite"
    return f"the output of {seen['output']} is not finite" if "output" in seen else None


@contextmanager
def _watching(network: nn.Module) -> Iterator[dict[str, str]]:
    """Note the first module whose output, and the first parameter whose gradient, is not finite."""
    seen: dict[str, str] = {}
    with ExitStack() as hooks:
        for name, module in plain_modules(network):
            note = partial(_note_output, seen, name or "the model")
            hooks.enter_context(_held(module.register_forward_hook(note)))
        for name, parameter in network.named_parameters():
            if parameter.requires_grad:
                note = partial(_note_gradient, seen, plain_name(name))
                hooks.enter_context(_held(parameter.register_post_accumulate_grad_hook(note)))
        yield seen


@contextmanager
def _held(handle: Any) -> Iterator[None]:
    try:
        yield
    finally:
        handle.remove()


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
