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


class Slab:
    """The layers of a stage, ``[layers, members, out, taps * in]``, and their biases, ``[layers, members, out]``.

    Attributes:
        rounded: the weights rounded to TF32, where a run has asked the updates for it; None elsewhere.
    """

    def __init__(self, stage: Stage, members: int, dtype: torch.dtype, device: torch.device) -> None:
        self.stage = stage
        shape = (len(stage.names), members, stage.outputs, stage.fan_in)
        self.weight = _leaf(shape, dtype, device, torch.zeros(shape, dtype=torch.bool, device=device))
        self.bias = _leaf(shape[:3], dtype, device)
        self.rounded: Tensor | None = None
        self._masked: list[set[str]] = [set() for _ in range(members)]

    @property
    def leaves(self) -> tuple[Leaf, Leaf]:
        """Weights and biases."""
        return self.weight, self.bias

    def fill(self, member: int, state: Mapping[str, Tensor]) -> None:
        """Give a member the weights, biases and masks of a network's state dict."""
        assert self.weight.off is not None, "weights have masks"
        for layer, name in enumerate(self.stage.names):
            self.weight.value[layer, member].copy_(self.stage.rows_of(state[f"{name}.weight"]))
            self.bias.value[layer, member].copy_(state[f"{name}.bias"])
            mask = state.get(f"{name}.weight_mask")
            if mask is not None:
                self._masked[member].add(name)
                self.weight.off[layer, member].copy_(~self.stage.rows_of(mask))

    def state_of(self, member: int) -> Iterator[tuple[str, Tensor]]:
        """Yield a member's entries of a state dict, copied."""
        assert self.weight.off is not None, "weights have masks"
        for layer, name in enumerate(self.stage.names):
            yield f"{name}.weight", self.stage.weight_of(self.weight.value[layer, member]).clone()
            yield f"{name}.bias", self.bias.value[layer, member].clone()
            if name in self._masked[member]:
                yield f"{name}.weight_mask", ~self.stage.weight_of(self.weight.off[layer, member])


def _leaf(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device, off: Tensor | None = None) -> Leaf:
    value, gradient, momentum = (torch.zeros(shape, dtype=dtype, device=device) for _ in range(3))
    norms = torch.zeros(shape[:2], dtype=dtype, device=device)
    return Leaf(value, gradient, momentum, norms, off)
