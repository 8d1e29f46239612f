"""Slabs: the weights of all networks and of a run of equal layers in one tensor, with all that training adds to them.

Nothing here is watched by autograd, which would make a gradient of the whole slab for every layer that is read off it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from orthosparse.lab.models.stages import Norms, Stage


@dataclass(frozen=True)
class Leaf:
    """A tensor that is trained, ``[layers, networks, ...]``.

    Attributes:
        norms: of the gradients, ``[layers, networks]``.
        off: true where a mask is false; None without masks.
    """

    value: Tensor
    gradient: Tensor
    momentum: Tensor
    norms: Tensor
    off: Tensor | None = None


class Slab:
    """The layers of a stage: weights ``[layers, networks, out, taps * in]``, biases ``[layers, networks, out]``.

    Attributes:
        named: all that is trained, by name; the weights come first.
        buffers: what training changes by other means than gradients, by name.
        rounded: the weights rounded to TF32, where a run has asked the updates for it; None elsewhere.
    """

    def __init__(
        self, stage: Stage, networks: int, dtype: torch.dtype, device: torch.device, *, bias: bool = True
    ) -> None:
        self.stage = stage
        shape = (len(stage.names), networks, stage.outputs, stage.fan_in)
        self.weight = leaf_of(shape, dtype, device, torch.zeros(shape, dtype=torch.bool, device=device))
        self.named: dict[str, Leaf] = {"weight": self.weight}
        self.buffers: dict[str, Tensor] = {}
        if bias:
            self.bias = leaf_of(shape[:3], dtype, device)
            self.named["bias"] = self.bias
        self.rounded: Tensor | None = None
        self._masked: list[set[str]] = [set() for _ in range(networks)]

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """All that is trained."""
        return tuple(self.named.values())

    def update_statistics(self, alive: Tensor) -> None:
        """Take note of a step that these networks have taken."""

    def mask_gradients(self) -> None:
        """Set the gradients off the masks to zero, and compute the norm of each layer's."""
        for leaf in self.leaves:
            if leaf.off is not None:
                leaf.gradient.masked_fill_(leaf.off, 0.0)
            torch.linalg.vector_norm(leaf.gradient.flatten(2), dim=2, out=leaf.norms)

    def entries(self) -> Iterator[tuple[str, str, int]]:
        """Yield every parameter: its name in a state dict, and where it is here, a name and a layer."""
        for layer, name in enumerate(self.stage.names):
            yield f"{name}.weight", "weight", layer
            if "bias" in self.named:
                yield f"{name}.bias", "bias", layer

    def momenta_of(self, place: int) -> Iterator[tuple[str, Tensor]]:
        """Yield what the optimizer of a network alone would remember of each parameter, copied."""
        for entry, name, layer in self.entries():
            yield entry, self._as_module(name, self.named[name].momentum[layer, place]).clone()

    def fill_momenta(self, place: int, momenta: Mapping[str, Tensor]) -> None:
        """Give a network what an optimizer remembers of the parameters."""
        for name, leaf in self.named.items():
            _stack_into(leaf.momentum[:, place], self._layers_of(name, momenta))

    def fill(self, place: int, state: Mapping[str, Tensor]) -> None:
        """Give a network the parameters and masks of a state dict."""
        for name, leaf in self.named.items():
            _stack_into(leaf.value[:, place], self._layers_of(name, state))
        self.fill_masks(place, state)

    def fill_masks(self, place: int, state: Mapping[str, Tensor]) -> None:
        """Give a network the masks of a state dict."""
        assert self.weight.off is not None, "weights have masks"
        names = [name for name in self.stage.names if f"{name}.weight_mask" in state]
        if names:
            self._masked[place].update(names)
            layers = [layer for layer, name in enumerate(self.stage.names) if f"{name}.weight_mask" in state]
            masks = torch.stack([self.stage.rows_of(state[f"{name}.weight_mask"]) for name in names])
            self.weight.off[layers, place] = masks.to(self.weight.off.device).logical_not_()

    def state_of(self, place: int) -> Iterator[tuple[str, Tensor]]:
        """Yield a network's entries of a state dict, copied."""
        assert self.weight.off is not None, "weights have masks"
        for entry, name, layer in self.entries():
            yield entry, self._as_module(name, self.named[name].value[layer, place]).clone()
        for layer, layer_name in enumerate(self.stage.names):
            if layer_name in self._masked[place]:
                yield f"{layer_name}.weight_mask", ~self.stage.weight_of(self.weight.off[layer, place])

    def _layers_of(self, name: str, state: Mapping[str, Tensor]) -> list[Tensor]:
        """Return a parameter of every layer, as it is here."""
        return [self._as_rows(name, state[entry]) for entry, own, _ in self.entries() if own == name]

    def _as_rows(self, name: str, tensor: Tensor) -> Tensor:
        return self.stage.rows_of(tensor) if name == "weight" else tensor

    def _as_module(self, name: str, tensor: Tensor) -> Tensor:
        return self.stage.weight_of(tensor) if name == "weight" else tensor


class NormSlab(Slab):
    """The layers of a stage, each with a batch normalisation over the samples and positions of a channel.

    Attributes:
        scale, shift: what a normalisation learns, ``[layers, networks, out]``.
        mean, var: its running statistics, as a network is tested by them; likewise.
        batch_mean, batch_var: those of the last batch, biased, as a network is trained by them.
        steps: how many batches the running statistics have seen, by network.
        samples: of which the statistics of the last batch were computed.
    """

    def __init__(
        self, stage: Stage, norms: Norms, networks: int, dtype: torch.dtype, device: torch.device, *, bias: bool = False
    ) -> None:
        super().__init__(stage, networks, dtype, device, bias=bias)
        self.norms = norms
        shape = self.weight.value.shape[:3]
        self.scale, self.shift = (leaf_of(shape, dtype, device) for _ in range(2))
        self.named |= {"scale": self.scale, "shift": self.shift}
        made = (torch.zeros(shape, dtype=dtype, device=device) for _ in range(4))
        self.mean, self.var, self.batch_mean, self.batch_var = made
        self.steps = torch.zeros(networks, dtype=torch.int64, device=device)
        self.buffers = {"mean": self.mean, "var": self.var, "steps": self.steps}
        self.samples = 0

    def entries(self) -> Iterator[tuple[str, str, int]]:
        """Yield weights, biases, scales and shifts; a normalisation calls the last two weight and bias."""
        yield from super().entries()
        for layer, name in enumerate(self.norms.names):
            yield f"{name}.weight", "scale", layer
            yield f"{name}.bias", "shift", layer

    def update_statistics(self, alive: Tensor) -> None:
        """Let the running statistics of these networks follow those of the last batch."""
        pace, unbiased = self.norms.momentum, self.samples / max(self.samples - 1, 1)
        for running, seen, factor in ((self.mean, self.batch_mean, 1.0), (self.var, self.batch_var, unbiased)):
            # As torch has it: by their difference, what has once been infinite would not be a number the next time.
            followed = torch.add(seen * (pace * factor), running, alpha=1 - pace)
            torch.where(alive[:, None], followed, running, out=running)
        self.steps += alive

    def fill(self, place: int, state: Mapping[str, Tensor]) -> None:
        """Give a network the parameters, masks and statistics of a state dict."""
        super().fill(place, state)
        for layer, name in enumerate(self.norms.names):
            self.mean[layer, place].copy_(state[f"{name}.running_mean"])
            self.var[layer, place].copy_(state[f"{name}.running_var"])
            self.steps[place] = state[f"{name}.num_batches_tracked"]

    def state_of(self, place: int) -> Iterator[tuple[str, Tensor]]:
        """Yield a network's entries of a state dict, copied."""
        yield from super().state_of(place)
        for layer, name in enumerate(self.norms.names):
            yield f"{name}.running_mean", self.mean[layer, place].clone()
            yield f"{name}.running_var", self.var[layer, place].clone()
            yield f"{name}.num_batches_tracked", self.steps[place].clone()


def leaf_of(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device, off: Tensor | None = None) -> Leaf:
    """Return a leaf of zeros."""
    value, gradient, momentum = (torch.zeros(shape, dtype=dtype, device=device) for _ in range(3))
    norms = torch.zeros(shape[:2], dtype=dtype, device=device)
    return Leaf(value, gradient, momentum, norms, off)


def _stack_into(target: Tensor, layers: list[Tensor]) -> None:
    """Write a tensor for each row of `target`; to another device in one copy, as one for each takes far longer."""
    if layers[0].device != target.device:
        target.copy_(torch.stack(layers))
    else:
        for row, layer in zip(target, layers, strict=True):
            row.copy_(layer)
