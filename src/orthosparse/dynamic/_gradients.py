"""Gradients of the loss with respect to ALL weights of masked layers, gathered only while asked for."""

from functools import partial

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from orthosparse.mappings import Scores


class DenseGradients:
    """Listens behind the masks: a parametrization's output has the dense gradient that its input never sees.

    Between `start` and `stop` the gradients of all backward passes add up, so that accumulation over micro-batches and
    layers that are used more than once come out right.

    Args:
        masks: the parametrization module of each layer, by layer name.
    """

    def __init__(self, masks: dict[str, nn.Module]) -> None:
        self.masks = masks
        self.gradients: Scores = {}
        self.handles: list[RemovableHandle] = []

    @property
    def listening(self) -> bool:
        """Whether gradients are being gathered."""
        return bool(self.handles)

    def start(self) -> None:
        """Gather from the next forward pass on."""
        self.gradients = {}
        self.handles = [mask.register_forward_hook(partial(self._listen, name)) for name, mask in self.masks.items()]

    def stop(self) -> Scores:
        """Stop, and return what was gathered."""
        for handle in self.handles:
            handle.remove()
        self.handles = []
        gathered, self.gradients = self.gradients, {}
        return gathered

    def _listen(self, name: str, mask: nn.Module, inputs: object, output: torch.Tensor) -> None:
        del mask, inputs  # the output alone has the dense gradient
        if output.requires_grad:
            output.register_hook(partial(self._add, name))

    def _add(self, name: str, gradient: torch.Tensor) -> None:
        seen = self.gradients.get(name)
        self.gradients[name] = gradient.detach().clone() if seen is None else seen + gradient.detach()
