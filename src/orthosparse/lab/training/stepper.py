"""Takes one step after another, out of a captured CUDA graph where it can."""

from collections.abc import Callable

import torch
from torch import Tensor

from orthosparse.lab.training.state import State
from orthosparse.lab.training.step import seed_step, take_step, targets


class Stepper:
    """Trains a state on batch after batch.

    Args:
        graph: capture whole batches as a CUDA graph; None does so on a single GPU when the optimizer can be captured.
    """

    def __init__(self, state: State, *, graph: bool | None = None) -> None:
        possible = state.networks.capturable
        if graph and not possible:
            device, optimizer = state.fabric.device, state.recipe.optimizer
            raise ValueError(f"graph: expected a single GPU and sgd or adamw; got {device}, {optimizer}")
        self.state = state
        self._graphed = self._capturing() if (possible if graph is None else graph) else None
        self._images = self._labels = torch.empty(0)

    def __call__(self, images: Tensor, labels: Tensor) -> None:
        """Take the next step of the state, whose batch this is (this rank's part of it)."""
        state, networks = self.state, self.state.networks
        seed_step(state)
        images, labels = targets(state, images, labels)
        whole = labels.shape[1] == state.loader.batch
        moving = networks.before_step(state.steps_done, whole=whole)
        if self._graphed is None or not whole or (moving and networks.moves_eagerly):
            take_step(state, images, labels, state.loader.count(state.step))
        else:
            self._fill(images, labels)
            self._graphed()
        networks.after_step(moving, images, labels, state.records.alive)
        state.step += 1

    def _capturing(self) -> Callable[[], None]:
        from orthosparse.lab.training.graph import Graphed  # for a GPU alone

        return Graphed(self._captured)

    def _captured(self) -> None:
        take_step(self.state, self._images, self._labels, self.state.loader.batch)

    def _fill(self, images: Tensor, labels: Tensor) -> None:
        if self._images.shape != images.shape:
            self._images, self._labels = torch.empty_like(images), torch.empty_like(labels)
        self._images.copy_(images)
        self._labels.copy_(labels)
