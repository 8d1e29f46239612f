"""Slabs of convolutions followed by batch normalisations: weights, scales and shifts, and running statistics."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from orthosparse.lab.training.ensemble.slab import Leaf, Weights, leaf_of
from orthosparse.lab.training.ensemble.stages import Stage


@dataclass(frozen=True)
class Norms:
    """The normalisations after the layers of a stage: their names, and what they share."""

    names: tuple[str, ...]
    eps: float
    momentum: float


class Normed(Weights):
    """The layers of a stage without biases, each with a normalisation over the samples and positions of a channel.

    Attributes:
        scale, shift: what a normalisation learns, ``[layers, members, out]``.
        mean, var: its running statistics, as a network is tested by them; likewise.
        batch_mean, batch_var: those of the last batch, biased, as a network is trained by them.
        steps: how many batches the running statistics have seen, by member.
    """

    def __init__(self, stage: Stage, norms: Norms, members: int, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__(stage, members, dtype, device)
        self.norms = norms
        shape = self.weight.value.shape[:3]
        self.scale, self.shift = (leaf_of(shape, dtype, device) for _ in range(2))
        made = (torch.zeros(shape, dtype=dtype, device=device) for _ in range(4))
        self.mean, self.var, self.batch_mean, self.batch_var = made
        self.steps = torch.zeros(members, dtype=torch.int64, device=device)
        self.samples = 0  # of which the statistics of the last batch were taken

    @property
    def named(self) -> dict[str, Leaf]:
        """Weights, scales and shifts."""
        return {"weight": self.weight, "scale": self.scale, "shift": self.shift}

    @property
    def buffers(self) -> dict[str, Tensor]:
        """The running statistics."""
        return {"mean": self.mean, "var": self.var, "steps": self.steps}

    def parameters(self) -> Iterator[tuple[str, Leaf, int]]:
        """Yield weights, scales and shifts; a normalisation calls these weight and bias."""
        yield from super().parameters()
        for layer, name in enumerate(self.norms.names):
            yield f"{name}.weight", self.scale, layer
            yield f"{name}.bias", self.shift, layer

    def settle(self, alive: Tensor) -> None:
        """Let the running statistics of these members follow those of the last batch."""
        pace, unbiased = self.norms.momentum, self.samples / max(self.samples - 1, 1)
        for running, seen, factor in ((self.mean, self.batch_mean, 1.0), (self.var, self.batch_var, unbiased)):
            # As torch has it: by their difference, what has once been infinite would not be a number the next time.
            followed = torch.add(seen * (pace * factor), running, alpha=1 - pace)
            torch.where(alive[:, None], followed, running, out=running)
        self.steps += alive

    def fill(self, member: int, state: Mapping[str, Tensor]) -> None:
        """Give a member the weights, masks and normalisations of a network's state dict."""
        super().fill(member, state)
        for layer, name in enumerate(self.norms.names):
            for entry, tensor in self._entries():
                tensor[layer, member].copy_(state[f"{name}.{entry}"])
            self.steps[member] = state[f"{name}.num_batches_tracked"]

    def state_of(self, member: int) -> Iterator[tuple[str, Tensor]]:
        """Yield a member's entries of a state dict, copied."""
        yield from super().state_of(member)
        for layer, name in enumerate(self.norms.names):
            for entry, tensor in self._entries():
                yield f"{name}.{entry}", tensor[layer, member].clone()
            yield f"{name}.num_batches_tracked", self.steps[member].clone()

    def _entries(self) -> tuple[tuple[str, Tensor], ...]:
        learned = ("weight", self.scale.value), ("bias", self.shift.value)
        return *learned, ("running_mean", self.mean), ("running_var", self.var)
