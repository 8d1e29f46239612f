"""Slabs: the weights of a run of equal layers of all networks in one tensor, with their gradients, momenta and masks.

Autograd tracks none of these tensors: it would allocate a gradient of the whole slab for every layer that is used.
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
        buffers: tensors that training changes without gradients, by name.
        rounded: a copy of the weights rounded to TF32, which SGD steps update; None unless a run has created it.
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
        """Update running statistics after a step that these networks have taken."""

    def mask_gradients(self) -> None:
        """Set the gradients off the masks to zero, and compute the norms of all layers."""
        for leaf in self.leaves:
            if leaf.off is not None:
                leaf.gradient.masked_fill_(leaf.off, 0.0)
            torch.linalg.vector_norm(leaf.gradient.flatten(2), dim=2, out=leaf.norms)

    def entries(self) -> Iterator[tuple[str, str, int]]:
        """Yield every parameter: its name in a state dict, the name of its leaf, and its layer."""
        for layer, name in enumerate(self.stage.names):
            yield f"{name}.weight", "weight", layer
            if "bias" in self.named:
                yield f"{name}.bias", "bias", layer

    def momenta_of(self, network: int) -> Iterator[tuple[str, Tensor]]:
        """Yield a copy of a network's momentum buffer of each parameter."""
        for entry, name, layer in self.entries():
            yield entry, self._as_module(name, self.named[name].momentum[layer, network]).clone()

    def fill_momenta(self, network: int, momenta: Mapping[str, Tensor]) -> None:
        """Set the momentum buffers of a network."""
        for name, leaf in self.named.items():
            _stack_into(leaf.momentum[:, network], self._layers_of(name, momenta))

    def fill(self, network: int, state: Mapping[str, Tensor]) -> None:
        """Set the parameters and masks of a network from a state dict."""
        for name, leaf in self.named.items():
            _stack_into(leaf.value[:, network], self._layers_of(name, state))
        self.fill_masks(network, state)

    def fill_masks(self, network: int, state: Mapping[str, Tensor]) -> None:
        """Set the masks of a network from a state dict."""
        assert self.weight.off is not None, "weights have masks"
        names = [name for name in self.stage.names if f"{name}.weight_mask" in state]
        if names:
            self._masked[network].update(names)
            layers = [layer for layer, name in enumerate(self.stage.names) if f"{name}.weight_mask" in state]
            masks = torch.stack([self.stage.rows_of(state[f"{name}.weight_mask"]) for name in names])
            self.weight.off[layers, network] = masks.to(self.weight.off.device).logical_not_()

    def state_of(self, network: int) -> Iterator[tuple[str, Tensor]]:
        """Yield copies of the entries of a network's state dict."""
        assert self.weight.off is not None, "weights have masks"
        for entry, name, layer in self.entries():
            yield entry, self._as_module(name, self.named[name].value[layer, network]).clone()
        for layer, layer_name in enumerate(self.stage.names):
            if layer_name in self._masked[network]:
                yield f"{layer_name}.weight_mask", ~self.stage.weight_of(self.weight.off[layer, network])

    def _layers_of(self, name: str, state: Mapping[str, Tensor]) -> list[Tensor]:
        """Return a parameter of every layer in the layout of the slab."""
        return [self._as_rows(name, state[entry]) for entry, leaf, _ in self.entries() if leaf == name]

    def _as_rows(self, name: str, tensor: Tensor) -> Tensor:
        return self.stage.rows_of(tensor) if name == "weight" else tensor

    def _as_module(self, name: str, tensor: Tensor) -> Tensor:
        return self.stage.weight_of(tensor) if name == "weight" else tensor


class NormSlab(Slab):
    """The layers of a stage, each with a batch normalisation over the samples and positions of a channel.

    Attributes:
        scale, shift: the parameters of the normalisations, ``[layers, networks, out]``.
        mean, var: their running statistics, for evaluation; of the same shape.
        batch_mean, batch_var: the statistics of the last batch, biased, for training.
        steps: batches that the running statistics include, by network.
        samples: values of a channel in the last batch.
    """

    def __init__(
        self, stage: Stage, norms: Norms, networks: int, dtype: torch.dtype, device: torch.device, *, bias: bool = False
    ) -> None:
        super().__init__(stage, networks, dtype, device, bias=bias)
        self.norms = norms
        shape = self.weight.value.shape[:3]
        self.scale, self.shift = (leaf_of(shape, dtype, device) for _ in range(2))
        self.named |= {"scale": self.scale, "shift": self.shift}
        statistics = (torch.zeros(shape, dtype=dtype, device=device) for _ in range(4))
        self.mean, self.var, self.batch_mean, self.batch_var = statistics
        self.steps = torch.zeros(networks, dtype=torch.int64, device=device)
        self.buffers = {"mean": self.mean, "var": self.var, "steps": self.steps}
        self.samples = 0

    def entries(self) -> Iterator[tuple[str, str, int]]:
        """Yield weights, biases, scales and shifts, which are weights and biases of normalisations in a state dict."""
        yield from super().entries()
        for layer, name in enumerate(self.norms.names):
            yield f"{name}.weight", "scale", layer
            yield f"{name}.bias", "shift", layer

    def update_statistics(self, alive: Tensor) -> None:
        """Update the running statistics of these networks by those of the last batch."""
        momentum, unbiased = self.norms.momentum, self.samples / max(self.samples - 1, 1)
        for running, batch, factor in ((self.mean, self.batch_mean, 1.0), (self.var, self.batch_var, unbiased)):
            # As in torch. Computed from their difference, infinite statistics would become NaN at the next step.
            updated = torch.add(batch * (momentum * factor), running, alpha=1 - momentum)
            torch.where(alive[:, None], updated, running, out=running)
        self.steps += alive

    def fill(self, network: int, state: Mapping[str, Tensor]) -> None:
        """Set the parameters, masks and statistics of a network from a state dict."""
        super().fill(network, state)
        for layer, name in enumerate(self.norms.names):
            self.mean[layer, network].copy_(state[f"{name}.running_mean"])
            self.var[layer, network].copy_(state[f"{name}.running_var"])
            self.steps[network] = state[f"{name}.num_batches_tracked"]

    def state_of(self, network: int) -> Iterator[tuple[str, Tensor]]:
        """Yield copies of the entries of a network's state dict."""
        yield from super().state_of(network)
        for layer, name in enumerate(self.norms.names):
            yield f"{name}.running_mean", self.mean[layer, network].clone()
            yield f"{name}.running_var", self.var[layer, network].clone()
            yield f"{name}.num_batches_tracked", self.steps[network].clone()


def leaf_of(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device, off: Tensor | None = None) -> Leaf:
    """Return a leaf of zeros."""
    value, gradient, momentum = (torch.zeros(shape, dtype=dtype, device=device) for _ in range(3))
    norms = torch.zeros(shape[:2], dtype=dtype, device=device)
    return Leaf(value, gradient, momentum, norms, off)


def _stack_into(target: Tensor, layers: list[Tensor]) -> None:
    """Write a tensor to each row of `target`; all in one copy to another device, which is much faster."""
    if layers[0].device != target.device:
        target.copy_(torch.stack(layers))
    else:
        for row, layer in zip(target, layers, strict=True):
            row.copy_(layer)
