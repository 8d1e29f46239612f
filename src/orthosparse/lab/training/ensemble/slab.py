"""Slabs: the weights of all members and of a run of equal layers in one tensor, with all that training adds to them.

Nothing here is watched by autograd, which would make a gradient of the whole slab for every layer that is read off it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from orthosparse.lab.training.ensemble.stages import Stage


@dataclass(frozen=True)
class Leaf:
    """A tensor that is trained, ``[layers, members, ...]``.

    Attributes:
        norms: of the gradients, ``[layers, members]``.
        off: true where a mask is false; None without masks.
    """

    value: Tensor
    gradient: Tensor
    momentum: Tensor
    norms: Tensor
    off: Tensor | None = None


class Weights:
    """The weights of the layers of a stage, ``[layers, members, out, taps * in]``; what else they have, others add.

    Attributes:
        rounded: the weights rounded to TF32, where a run has asked the updates for it; None elsewhere.
    """

    def __init__(self, stage: Stage, members: int, dtype: torch.dtype, device: torch.device) -> None:
        self.stage = stage
        shape = (len(stage.names), members, stage.outputs, stage.fan_in)
        self.weight = leaf_of(shape, dtype, device, torch.zeros(shape, dtype=torch.bool, device=device))
        self.rounded: Tensor | None = None
        self._masked: list[set[str]] = [set() for _ in range(members)]

    @property
    def named(self) -> dict[str, Leaf]:
        """All that is trained, by name; the weights come first."""
        return {"weight": self.weight}

    @property
    def buffers(self) -> dict[str, Tensor]:
        """What training changes by other means than gradients, by name; members come second to last, or last."""
        return {}

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """All that is trained."""
        return tuple(self.named.values())

    def settle(self, alive: Tensor) -> None:
        """Take note of a step that these members have taken."""

    def measure(self) -> None:
        """Set the gradients off the masks to zero, and take the norm of each layer's."""
        for leaf in self.leaves:
            if leaf.off is not None:
                leaf.gradient.masked_fill_(leaf.off, 0.0)
            torch.linalg.vector_norm(leaf.gradient.flatten(2), dim=2, out=leaf.norms)

    def parameters(self) -> Iterator[tuple[str, Leaf, int]]:
        """Yield the name of every parameter, and where it is: a leaf, and which layer of it."""
        for layer, name in enumerate(self.stage.names):
            yield f"{name}.weight", self.weight, layer

    def momenta_of(self, member: int) -> Iterator[tuple[str, Tensor]]:
        """Yield what a member's optimizer would remember of each parameter, copied."""
        for name, leaf, layer in self.parameters():
            momentum = leaf.momentum[layer, member]
            yield name, (self.stage.weight_of(momentum) if leaf is self.weight else momentum).clone()

    def fill_momenta(self, member: int, momenta: Mapping[str, Tensor]) -> None:
        """Give a member's leaves what an optimizer remembers of the parameters."""
        for name, leaf, layer in self.parameters():
            momentum = self.stage.rows_of(momenta[name]) if leaf is self.weight else momenta[name]
            leaf.momentum[layer, member].copy_(momentum)

    def fill(self, member: int, state: Mapping[str, Tensor]) -> None:
        """Give a member the weights and masks of a network's state dict."""
        for layer, name in enumerate(self.stage.names):
            self.weight.value[layer, member].copy_(self.stage.rows_of(state[f"{name}.weight"]))
        self.fill_masks(member, state)

    def fill_masks(self, member: int, state: Mapping[str, Tensor]) -> None:
        """Give a member the masks of a network's state dict."""
        assert self.weight.off is not None, "weights have masks"
        for layer, name in enumerate(self.stage.names):
            mask = state.get(f"{name}.weight_mask")
            if mask is not None:
                self._masked[member].add(name)
                self.weight.off[layer, member].copy_(~self.stage.rows_of(mask))

    def state_of(self, member: int) -> Iterator[tuple[str, Tensor]]:
        """Yield a member's entries of a state dict, copied."""
        assert self.weight.off is not None, "weights have masks"
        for layer, name in enumerate(self.stage.names):
            yield f"{name}.weight", self.stage.weight_of(self.weight.value[layer, member]).clone()
            if name in self._masked[member]:
                yield f"{name}.weight_mask", ~self.stage.weight_of(self.weight.off[layer, member])


class Slab(Weights):
    """The layers of a stage with their biases, ``[layers, members, out]``."""

    def __init__(self, stage: Stage, members: int, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__(stage, members, dtype, device)
        self.bias = leaf_of(self.weight.value.shape[:3], dtype, device)

    @property
    def named(self) -> dict[str, Leaf]:
        """Weights and biases."""
        return {"weight": self.weight, "bias": self.bias}

    def parameters(self) -> Iterator[tuple[str, Leaf, int]]:
        """Yield weights and biases."""
        yield from super().parameters()
        for layer, name in enumerate(self.stage.names):
            yield f"{name}.bias", self.bias, layer

    def fill(self, member: int, state: Mapping[str, Tensor]) -> None:
        """Give a member the weights, biases and masks of a network's state dict."""
        super().fill(member, state)
        for layer, name in enumerate(self.stage.names):
            self.bias.value[layer, member].copy_(state[f"{name}.bias"])

    def state_of(self, member: int) -> Iterator[tuple[str, Tensor]]:
        """Yield a member's entries of a state dict, copied."""
        yield from super().state_of(member)
        for layer, name in enumerate(self.stage.names):
            yield f"{name}.bias", self.bias.value[layer, member].clone()


def leaf_of(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device, off: Tensor | None = None) -> Leaf:
    """Return a leaf of zeros."""
    value, gradient, momentum = (torch.zeros(shape, dtype=dtype, device=device) for _ in range(3))
    norms = torch.zeros(shape[:2], dtype=dtype, device=device)
    return Leaf(value, gradient, momentum, norms, off)
