"""What the loop asks of what it trains: one network, or a stack of networks of one shape."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch
from torch import Tensor


class Networks(Protocol):
    """One network or many, with all that an update of their weights needs.

    Attributes:
        count: how many networks there are.
        parameters: of one network, masked ones included.
        dtype: of the losses.
        capturable: whether a step may be captured as a CUDA graph.
        moves_eagerly: whether a step at which masks move must not be replayed from a graph.
        parts: what `state_dict` has at least, with their types.
    """

    count: int
    parameters: int
    dtype: torch.dtype
    capturable: bool
    moves_eagerly: bool
    parts: Mapping[str, type | tuple[type, ...]]

    def __call__(self, images: Tensor) -> Tensor:
        """Return the logits, ``[networks, batch, classes]``; while testing, all networks see the same images."""

    def train(self, mode: bool = True) -> Any:
        """Compute as in training, or as in tests."""

    def passes(self) -> AbstractContextManager[Any]:
        """Return what surrounds the forward and backward passes of a step."""

    def accumulating(self, more: bool) -> AbstractContextManager[Any]:
        """Return what surrounds one part of a batch; `more` parts follow or not."""

    def zero_grad(self) -> None:
        """Forget the gradients of the step before."""

    def backward(self, loss: Tensor) -> None:
        """Fill the gradients."""

    def gradient_norms(self) -> Tensor:
        """Return the norm of each network's gradient; clip the gradients where the recipe says so."""

    def update(self, alive: Tensor) -> None:
        """Take the optimizer's step with the networks that are alive; the others stay as they are."""

    def set_rate(self, rate: float) -> None:
        """Set the learning rate, in place: a captured graph reads it."""

    def before_step(self, steps_done: int, *, whole: bool) -> Any:
        """Get ready for a step on a whole batch, or a shorter one; return something true where masks move at it."""

    def after_step(self, moving: Any, images: Tensor, labels: Tensor, alive: Tensor) -> None:
        """Take note of the step, and move masks; `moving` is what `before_step` returned."""

    def densities(self) -> list[float]:
        """Return the share of weights that are active, of the layers that have masks; 1 without any."""

    def alone(self, state: Any, place: int) -> Any:
        """Return the state of a run of one of the networks alone, with the weights that it has now."""

    def state_dict(self) -> dict[str, Any]:
        """Return all that a resumed run needs; tensors are copies, on the CPU."""

    def load_state_dict(self, tree: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` returned."""
