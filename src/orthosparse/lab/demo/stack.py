"""Several perceptrons of one shape as one: a batched product for each layer trains them all, each on its own."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

import orthosparse


class Stack(nn.Module):
    """The networks side by side: weights [networks, out, in], the square ones of all layers in one tensor.

    They share nothing but the batches: the gradient of the sum of their losses is, for each, that of its own. Masks act
    as on the networks themselves, by a product in the forward pass.

    Args:
        networks: ``mlp`` networks of one depth (3 at least) and width, with tanh between the layers, masked or not.
    """

    masks: Tensor

    def __init__(self, networks: Sequence[nn.Module]) -> None:
        super().__init__()
        layers = [orthosparse.find_layers(network) for network in networks]
        masks = [orthosparse.masks_of(network) for network in networks]
        names = list(layers[0])
        weights, biases, active = [], [], []
        for name in names:
            owned = [found[name] for found in layers]
            weights.append(torch.stack([layer.parameter().detach() for layer in owned]))
            biases.append(torch.stack([layer.module.get_parameter("bias").detach() for layer in owned]).unsqueeze(1))
            kept = [own.get(name, torch.ones_like(weights[-1][0], dtype=torch.bool)) for own in masks]
            active.append(torch.stack(kept).to(weights[-1].dtype))
        self.first, self.last = nn.Parameter(weights[0]), nn.Parameter(weights[-1])
        self.inner = nn.Parameter(torch.stack(weights[1:-1]))
        self.biases = nn.ParameterList(map(nn.Parameter, (biases[0], torch.stack(biases[1:-1]), biases[-1])))
        for part, mask in {"first": active[0], "inner": torch.stack(active[1:-1]), "last": active[-1]}.items():
            self.register_buffer(f"{part}_mask", mask)

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits [networks, batch, classes] of images [batch, ...]."""
        signal = images.flatten(1).expand(len(self.first), -1, -1)
        signal = torch.baddbmm(self.biases[0], signal, self._masked("first")).tanh()
        for weight, bias in zip(self._masked("inner").unbind(0), self.biases[1].unbind(0), strict=True):
            signal = torch.baddbmm(bias, signal, weight).tanh()
        return torch.baddbmm(self.biases[2], signal, self._masked("last"))

    def _masked(self, part: str) -> Tensor:
        weight: Tensor = getattr(self, part) * getattr(self, f"{part}_mask")
        return weight.mT
