"""Takes one step after another: out of a captured graph where it can, watched for numbers that are not finite."""

from math import isfinite
from typing import Any

import torch
from torch import Tensor

from orthosparse.lab.training.graph import Graphed
from orthosparse.lab.training.nonfinite import diagnose, first_bad
from orthosparse.lab.training.optimizers import can_be_captured
from orthosparse.lab.training.snapshot import put_back, take
from orthosparse.lab.training.state import State
from orthosparse.lab.training.step import gradients, mixed
from orthosparse.lab.training.trees import copied
from orthosparse.masking.deferred import DeferredMasks
from orthosparse.randomness import derive_seed


class Stepper:
    """Trains a state on batch after batch.

    On one CPU every step is checked before its update. Elsewhere that would mean to wait for the device at every step:
    there `verify` finds the bad step afterwards and computes up to it again, from what `remember` has kept.

    Args:
        graph: capture full batches as a CUDA graph; None does so on a single GPU when the optimizer can be captured.
        at_once: check every step before its update; None does so on a single CPU.
        compiled: have torch compile the network for full batches, in one process: quicker steps on a GPU, other
            roundings, and a minute more at the beginning.
    """

    def __init__(
        self, state: State, *, graph: bool | None = None, at_once: bool | None = None, compiled: bool = False
    ) -> None:
        device = state.fabric.device
        possible = device.type == "cuda" and state.fabric.world_size == 1 and can_be_captured(state.optimizer)
        if graph and not possible:
            raise ValueError(f"graph: expected a single GPU and sgd or adamw; got {device}, {state.recipe.optimizer}")
        if compiled and state.fabric.world_size > 1:
            raise ValueError(f"compiled: expected one process; got {state.fabric.world_size}")
        self.state = state
        self._compiled = torch.compile(state.network, dynamic=False) if compiled else None
        self._at_once = (device.type == "cpu" and state.fabric.world_size == 1) if at_once is None else at_once
        self._graphed = Graphed(self._captured) if (possible if graph is None else graph) else None
        self._late = DeferredMasks(state.network, state.optimizer) if _may_be_late(state) else None
        self._images = self._labels = torch.empty(0)
        self._good: Any = None

    def __call__(self, images: Tensor, labels: Tensor) -> None:
        """Take the next step of the state, whose batch this is (this rank's part of it)."""
        state = self.state
        _reseed(state)
        images, labels = mixed(state, images, labels)
        rewires = state.rewirer is not None and state.rewirer.due
        whole = len(images) == state.loader.batch
        if self._graphed is None or rewires or not whole:
            # The rewirer reads gradients from behind the masks.
            compiled = self._compiled if whole and not rewires else None
            self._eager(images, labels, None if rewires else self._late, compiled)
        else:
            self._fill(images, labels)
            if self._late is not None:
                self._late.prepare()
            self._graphed()
            if self._late is not None:
                self._late.trust()
        if state.rewirer is not None:
            state.rewirer.step()
        state.step += 1

    def remember(self) -> None:
        """Keep the state as it is now, to come back to when a later step turns out bad."""
        if not self._at_once:
            self._good = copied(take(self.state))

    def verify(self) -> Tensor:
        """Return the tally of the epoch so far.

        Raises:
            NonFiniteError: a loss or a gradient in it is not finite.
        """
        values = self.state.tallied()
        bad = first_bad(values)
        if bad is not None:
            self._go_back_to(bad)
        return values

    def _eager(self, images: Tensor, labels: Tensor, late: DeferredMasks | None, compiled: Any) -> None:
        state, count = self.state, self.state.loader.count(self.state.step)
        gradients(state, images, labels, count, masks=late, compiled=compiled)
        if self._at_once and not all(map(isfinite, state.tally.values[:2, state.step].tolist())):
            raise diagnose(state, images, labels, count)
        state.optimizer.step()
        if late is not None:
            late.trust()

    def _captured(self) -> None:
        count = self.state.loader.batch
        gradients(self.state, self._images, self._labels, count, masks=self._late, compiled=self._compiled)
        self.state.optimizer.step()

    def _fill(self, images: Tensor, labels: Tensor) -> None:
        if self._images.shape != images.shape:
            self._images = torch.empty_like(self.state.laid_out(images))
            self._labels = torch.empty_like(labels)
        self._images.copy_(images)
        self._labels.copy_(labels)

    def _go_back_to(self, bad: int) -> None:
        """Compute again up to the bad step of this epoch, eagerly, and raise what is found there."""
        state = self.state
        if self._good is None:
            raise RuntimeError("verify: expected remember() at the start of the epoch")
        put_back(state, self._good)
        self._graphed = None
        for images, labels in state.loader.epoch(state.epoch, state.step):
            if state.step == bad:
                _reseed(state)
                raise diagnose(state, *mixed(state, images, labels), state.loader.count(bad))
            self(images, labels)


def _may_be_late(state: State) -> bool:
    """Whether the masks may act on the gradients of a step as a whole.

    Not where DDP reads each gradient as soon as it is there; nor under autocast on a CPU, where runs are to be the same
    to the last bit: it keeps the cast of a parameter and not that of a computed weight, so that sums of gradients would
    round differently.
    """
    exact = state.fabric.device.type == "cpu"
    return state.fabric.world_size == 1 and not (exact and state.recipe.precision == "bf16")


def _reseed(state: State) -> None:
    """Seed what layers draw from while training (dropout), which can only be torch's global generators.

    `fit` fences them. A seed for every step, so that a resumed run draws what the first one would have drawn.
    """
    seed = derive_seed(state.seed, "step", state.epoch, state.step, state.fabric.global_rank)
    torch.default_generator.manual_seed(seed)
    if state.fabric.device.type == "cuda":
        torch.cuda.default_generators[state.fabric.device.index].manual_seed(seed)
