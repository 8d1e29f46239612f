"""Everything that changes while a network trains, and what a step needs beside it."""

from dataclasses import dataclass, field
from typing import Any

import torch
from lightning_fabric import Fabric
from lightning_fabric.strategies.single_device import SingleDeviceStrategy
from torch import Tensor, nn

from orthosparse.lab.data import Loader
from orthosparse.lab.training.objective import Objective, objective
from orthosparse.lab.training.recipe import Recipe, learning_rate
from orthosparse.lab.training.tally import Tally


@dataclass
class State:
    """A run between two steps: step `step` of epoch `epoch` comes next.

    Attributes:
        model: as Fabric wrapped it.
        network: the module inside.
        is_plain: the wrapper adds nothing (one CPU, float32), so that a step calls the network itself: on a small one
            the way through the wrapper and back takes as long as some of its layers.
        rewirer: moves the masks after each step, or None.
        seed: of everything that is drawn while training (dropout, mixing).
        history: one entry of metrics for each finished epoch.
        seconds: spent so far, earlier parts of a resumed run included.
        layout: in which images go into the network (that of its convolutions).
    """

    fabric: Fabric
    recipe: Recipe
    model: nn.Module
    network: nn.Module
    optimizer: torch.optim.Optimizer
    loader: Loader
    classes: int
    seed: int
    validation: Loader | None = None
    rewirer: Any = None
    epoch: int = 0
    step: int = 0
    history: list[dict[str, float]] = field(default_factory=list)
    seconds: float = 0.0
    layout: torch.memory_format = torch.contiguous_format
    is_plain: bool = field(init=False)
    tally: Tally = field(init=False)
    objective: Objective = field(init=False)

    def __post_init__(self) -> None:
        single = self.fabric.device.type == "cpu" and isinstance(self.fabric.strategy, SingleDeviceStrategy)
        self.is_plain = single and self.recipe.precision in ("fp32", "tf32")
        self.tally = Tally(len(self.loader), self.fabric.device)
        self.objective = objective(self.recipe)

    @property
    def steps_done(self) -> int:
        """Optimizer steps since the start of the run."""
        return self.epoch * len(self.loader) + self.step

    def set_rate(self) -> float:
        """Give the optimizer the rate of this epoch, and return it."""
        rate = learning_rate(self.recipe, self.epoch)
        for group in self.optimizer.param_groups:
            # In place: a captured graph reads the tensor, not the group.
            group["lr"].fill_(rate) if isinstance(group["lr"], Tensor) else group.update(lr=rate)
        return rate

    def tallied(self) -> Tensor:
        """Return the loss, gradient norm and hits of this epoch's steps so far, of all ranks together, on the CPU."""
        values = self.tally.values[:, : self.step]
        # The norm is that of the reduced gradient: every rank holds it already.
        return torch.stack([self.summed(values[0]), values[1], self.summed(values[2])]).cpu()

    def summed(self, tensor: Tensor) -> Tensor:
        """Return the sum of a tensor over all ranks."""
        if self.fabric.world_size == 1:
            return tensor
        total = self.fabric.all_reduce(tensor.clone(), reduce_op="sum")
        assert isinstance(total, Tensor)
        return total

    def laid_out(self, images: Tensor) -> Tensor:
        """Return the images in the network's layout."""
        return images.contiguous(memory_format=self.layout) if images.dim() == 4 else images
