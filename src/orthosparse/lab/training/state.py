"""Everything that changes while networks train, and what a step needs beside it."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from orthosparse.lab.training.objective import Objective, objective
from orthosparse.lab.training.recipe import Recipe, learning_rate
from orthosparse.lab.training.records import Records

if TYPE_CHECKING:
    from lightning_fabric import Fabric

    from orthosparse.lab.training.networks import Networks


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
    objective: Objective = field(init=False)

    def __post_init__(self) -> None:
        self.records = Records(len(self.loader), self.networks.count, self.fabric.device)
        self.histories = self.histories or [[] for _ in range(self.networks.count)]
        self.objective = objective(self.recipe)

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
