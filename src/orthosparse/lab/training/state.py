"""The state of a run: the interface of its networks (one or a stack), its position, and its records."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from orthosparse.lab.training.recipe import Recipe, learning_rate

if TYPE_CHECKING:
    from lightning_fabric import Fabric


class Networks(Protocol):
    """One network or a stack of them, with optimizer and masks.

    Attributes:
        count: the number of networks.
        parameters: of one network, including masked ones.
        dtype: of the losses.
        capturable: whether a step may be captured as a CUDA graph.
        moves_eagerly: whether a step at which masks move must not be replayed from a graph.
        parts: the entries that `state_dict` always has, with their types.
    """

    count: int
    parameters: int
    dtype: torch.dtype
    capturable: bool
    moves_eagerly: bool
    parts: Mapping[str, type | tuple[type, ...]]

    def __call__(self, images: Tensor) -> Tensor:
        """Return the logits, ``[networks, batch, classes]``; in evaluation mode, all networks get the same images."""

    def train(self, mode: bool = True) -> Any:
        """Set training or evaluation mode."""

    def passes(self) -> AbstractContextManager[Any]:
        """Return the context of the forward and backward passes of a step."""

    def accumulating(self, more: bool) -> AbstractContextManager[Any]:
        """Return the context of one part of a batch; `more` says whether others follow."""

    def zero_grad(self) -> None:
        """Reset the gradients of the previous step."""

    def backward(self, loss: Tensor) -> None:
        """Fill the gradients."""

    def gradient_norms(self) -> Tensor:
        """Return the norm of each network's gradient; clip the gradients if the recipe says so."""

    def update(self, alive: Tensor) -> None:
        """Take the optimizer's step with the networks that are alive; the others do not change."""

    def set_rate(self, rate: float) -> None:
        """Set the learning rate, in place: a captured graph reads it."""

    def before_step(self, steps_done: int, *, whole: bool) -> Any:
        """Prepare a step on a whole or a shorter batch; return a true value if masks move at it."""

    def after_step(self, moving: Any, images: Tensor, labels: Tensor, alive: Tensor) -> None:
        """Count the step, and move masks; `moving` is the value that `before_step` returned."""

    def densities(self) -> list[float]:
        """Return the density of each network over the layers that have masks; 1 without masks."""

    def as_single(self, state: Any, index: int) -> Any:
        """Return a single run of one of the networks with its current weights."""

    def state_dict(self) -> dict[str, Any]:
        """Return everything that a resumed run needs; tensors are copies on the CPU."""

    def load_state_dict(self, tree: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""


class Records:
    """Loss, gradient norm and hits of each step of an epoch, for each network.

    `add` works in place on tensors of fixed address, so that it can be captured in a graph.

    Attributes:
        values: loss, gradient norm and hits, ``[3, steps, networks]``.
        alive: networks whose losses and gradients have been finite; the others are no longer updated.
        stopped: the step, since the start of the run, at which a network stopped; -1 for none.
        clock: steps since the start of the run.
    """

    def __init__(self, steps: int, networks: int, device: torch.device) -> None:
        self.values = torch.zeros(3, steps, networks, device=device)
        self.alive = torch.ones(networks, dtype=torch.bool, device=device)
        self.stopped = torch.full((networks,), -1, dtype=torch.int64, device=device)
        self.clock = torch.zeros(1, dtype=torch.int64, device=device)

    def add(self, losses: Tensor, norms: Tensor, hits: Tensor) -> None:
        """Record the next step; a network whose loss or gradient is not finite stops at this step."""
        finite = torch.isfinite(losses) & torch.isfinite(norms)
        self.stopped.copy_(torch.where(self.alive & ~finite, self.clock, self.stopped))
        self.alive &= finite
        row = torch.stack([losses.float(), norms.float(), hits.float()]).unsqueeze(1)
        self.values.index_copy_(1, self.clock % self.values.shape[1], row)
        self.clock += 1


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


@dataclass
class State:
    """A run between two steps: step `step` of epoch `epoch` comes next, for every network.

    Attributes:
        networks: one network, or a stack of them.
        loader: of the training samples; for a stack, of images ``[networks, batch, C, H, W]``.
        seed: of everything that is drawn while training (dropout, mixing).
        histories: for each network, the metrics of the epochs that it finished.
        errors: of networks that have stopped.
        seconds: spent so far, earlier parts of a resumed run included.
    """

    fabric: "Fabric"
    recipe: Recipe
    networks: "Networks"
    loader: Any
    test: Any
    classes: int
    seed: int
    validation: Any = None
    epoch: int = 0
    step: int = 0
    histories: list[list[dict[str, float]]] = field(default_factory=list)
    errors: dict[int, NonFiniteError] = field(default_factory=dict)
    seconds: float = 0.0
    records: Records = field(init=False)

    def __post_init__(self) -> None:
        self.records = Records(len(self.loader), self.networks.count, self.fabric.device)
        self.histories = self.histories or [[] for _ in range(self.networks.count)]

    @property
    def steps_done(self) -> int:
        """Optimizer steps since the start of the run."""
        return self.epoch * len(self.loader) + self.step

    def is_alive(self) -> bool:
        """Return whether any network still trains; this waits for the device."""
        return bool(self.records.alive.any())

    def values(self) -> Tensor:
        """Return the loss, gradient norm and hits of this epoch's steps so far; this waits for the device."""
        return self.records.values[:, : self.step].cpu()

    def set_rate(self) -> float:
        """Set the learning rate of this epoch, and return it."""
        rate = learning_rate(self.recipe, self.epoch)
        self.networks.set_rate(rate)
        return rate

    def summed(self, tensor: Tensor) -> Tensor:
        """Return the sum of a tensor over all ranks."""
        if self.fabric.world_size == 1:
            return tensor
        total = self.fabric.all_reduce(tensor.clone(), reduce_op="sum")
        assert isinstance(total, torch.Tensor)
        return total
