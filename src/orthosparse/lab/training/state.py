"""Everything that changes while networks train, what its steps gave, and what a step needs beside it."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from orthosparse.lab.training.recipe import Recipe, learning_rate

if TYPE_CHECKING:
    from lightning_fabric import Fabric

    from orthosparse.lab.training.networks import Networks


class Records:
    """Loss, gradient norm and hits of each step of an epoch, for each network.

    `add` works in place on tensors of fixed address, so that a captured graph may hold it.

    Attributes:
        values: loss, gradient norm and hits, ``[3, steps, networks]``.
        alive: networks whose losses and gradients were finite so far; the others are not updated any more.
        stopped: the step, since the start of the run, at which a network stopped; -1 for none.
        clock: steps since the start of the run.
    """

    def __init__(self, steps: int, networks: int, device: torch.device) -> None:
        self.values = torch.zeros(3, steps, networks, device=device)
        self.alive = torch.ones(networks, dtype=torch.bool, device=device)
        self.stopped = torch.full((networks,), -1, dtype=torch.int64, device=device)
        self.clock = torch.zeros(1, dtype=torch.int64, device=device)

    def add(self, losses: Tensor, norms: Tensor, hits: Tensor) -> None:
        """Note the next step; a network that gave what is not finite has stopped from this step on."""
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
        tests_epochs: whether the networks are tested after every epoch too.
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
    tests_epochs: bool = False
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
