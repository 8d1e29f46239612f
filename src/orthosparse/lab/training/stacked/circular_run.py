"""A run of circular convolutions by our kernels in CUDA: samples stay inside multiprocessors from layer to layer."""

from typing import Any

import torch
from torch import Tensor

from orthosparse.lab.training.stacked.chain import Cast, LayerRun
from orthosparse.lab.training.stacked.circular_launches import CircularKernels, as_rows, grouped
from orthosparse.lab.training.stacked.operations import activation_backward
from orthosparse.lab.training.stacked.slab import Slab


class CircularRun(LayerRun):
    """Convolutions whose samples lie in groups of channels in between; many layers are one launch.

    Args:
        kernels: see `circular_launches.kernels_for`.
    """

    chunk = 44  # three blocks of weight gradients a layer: one for each multiprocessor of an H200

    def __init__(self, slab: Slab, dtype: torch.dtype, kernels: CircularKernels) -> None:
        super().__init__(slab, dtype)
        self._kernels = kernels

    def cast(self) -> Cast:
        """Return the weights in the orders of both passes, and the biases."""
        return self._kernels.pack(self.slab.weight.value), self.slab.bias.value

    def infer_layers(self, x: Tensor, cast: Cast) -> Tensor:
        """Return the outputs of the last layer."""
        given = grouped(x)
        out = torch.empty_like(given)
        self._kernels.forward(given, cast[0][0], cast[1], out, keep=False)
        return as_rows(out)

    def forward_layers(self, x: Tensor, cast: Cast) -> tuple[Tensor, Tensor]:
        """Return the inputs and the outputs of all layers, ``[layers, networks, images, groups, pixels, 8]``."""
        given = grouped(x)
        both = given.new_empty(len(cast[1]) + 1, *given.shape)
        both[0].copy_(given)
        self._kernels.forward(both[0], cast[0][0], cast[1], both[1:], keep=True)
        return both[:-1], both[1:]

    def last_of(self, outputs: Tensor) -> Tensor:
        """Return the outputs of the last layer as others have them."""
        return as_rows(outputs[-1])

    def backward(self, grad: Tensor, kept: Any, *, first: bool) -> Tensor | None:
        """Fill the gradients of the slab and their norms; return that of the input unless this run is `first`."""
        found = super().backward(grouped(grad), kept, first=first)
        return None if found is None else as_rows(found)

    def backward_layers(
        self, grad: Tensor, inputs: Tensor, outputs: Tensor, weights: Tensor, start: int, *, last: bool
    ) -> Tensor:
        """Go back through some layers, fill their gradients, and return that of their input (unless `last`)."""
        before, found = torch.empty_like(outputs), torch.empty_like(grad)
        activation_backward(grad, outputs[-1], before[-1], self.stage.activation)
        stop, leaf = start + len(outputs), self.slab.weight
        self._kernels.backward(before, inputs, weights[1, start:stop], None if last else found)
        assert leaf.off is not None, "weights have masks"
        off, gradient = leaf.off[start:stop].view(torch.uint8), leaf.gradient[start:stop]
        leaf.norms[start:stop] = self._kernels.weight_grad(before, inputs, off, gradient)
        self._kernels.bias_grad(before, self.slab.bias.gradient[start:stop])
        return found

    def mask_gradients(self) -> None:
        """Compute the norms of the gradients of biases: those of weights are there."""
        torch.linalg.vector_norm(self.slab.bias.gradient, dim=2, out=self.slab.bias.norms)
