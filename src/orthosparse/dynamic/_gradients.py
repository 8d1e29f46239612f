"""Gradients of the loss with respect to ALL weights of masked layers, gathered on request."""

from collections.abc import Mapping
from typing import Any

import torch

from orthosparse.aliases import Scores


class DenseGradients:
    """Listens behind the masks: a parametrization's output has the dense gradient that its input never sees.

    Between `start` and `stop` the gradients of all backward passes add up, so that accumulation over micro-batches and
    layers that are used more than once come out right.

    Args:
        units: the units of each layer (``Units``), by layer name.
    """

    def __init__(self, units: Mapping[str, Any]) -> None:
        self._units = dict(units)
        # The same objects at every update: a compiled model is guarded by their identity.
        self._listeners = {name: _Listener(layer.parameter.dtype) for name, layer in units.items()}
        self.listening = False  # whether gradients are being gathered

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Attach the listeners to copied layers, which lost theirs, if gradients are being gathered."""
        vars(self).update(state)
        if self.listening:
            self.start()

    def start(self) -> None:
        """Gather from the next forward pass on."""
        for name, units in self._units.items():
            self._listeners[name].start(units.like)
            units.host.listener = self._listeners[name]
        self.listening = True

    def stop(self) -> Scores:
        """Stop, and return what was gathered; nothing for a layer that no backward pass went through."""
        if not self.listening:
            return {}
        for name, units in self._units.items():
            if units.host.listener is self._listeners[name]:
                del units.host.listener  # None as an instance attribute would make torch compile again
        self.listening = False
        gathered = {name: listener.stop() for name, listener in self._listeners.items()}
        return {name: gradient for name, gradient in gathered.items() if gradient is not None}


class _Listener:
    """Adds up the gradients of one tensor: by a hook, or under torch.compile, which has no hooks, by a zero summand.

    The summand takes no memory (all entries share one element), and exists before the graph, so that its gradient is
    one of the results of the graph.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype
        self._summand = torch.empty(0)
        self._sum: torch.Tensor | None = None

    def start(self, like: torch.Tensor) -> None:
        zero = torch.zeros((), dtype=self._dtype, device=like.device)
        self._summand, self._sum = zero.expand(like.shape).requires_grad_(), None

    def stop(self) -> torch.Tensor | None:
        compiled, hooked = self._summand.grad, self._sum
        self._summand, self._sum = torch.empty(0), None
        return hooked if compiled is None else compiled if hooked is None else hooked + compiled

    def __call__(self, weight: torch.Tensor) -> torch.Tensor:
        if not weight.requires_grad:
            return weight
        if torch.compiler.is_compiling():
            return weight + self._summand.to(weight.dtype)
        weight.register_hook(self._add)
        return weight

    def _add(self, gradient: torch.Tensor) -> None:
        gradient = gradient.detach()
        self._sum = gradient.clone() if self._sum is None else self._sum + gradient
