"""A run of circular convolutions by our CUDA kernels, in which samples stay in shared memory from layer to layer."""

from typing import Any

import torch
from torch import Tensor

from orthosparse.lab.training.stacked.chain import Cast, LayerRun
from orthosparse.lab.training.stacked.circular_launches import CircularKernels, grouped, ungrouped
from orthosparse.lab.training.stacked.operations import activation_backward
from orthosparse.lab.training.stacked.slab import Slab


class CircularRun(LayerRun):
    """Convolutions whose samples are in groups of channels between the layers; many layers are one launch.

    Args:
        kernels: see `circular_launches.kernels_for`.
    """

    chunk = 44  # three blocks a layer for the gradients of weights: one for each multiprocessor of an H200

    def __init__(self, slab: Slab, dtype: torch.dtype, kernels: CircularKernels) -> None:
        super().__init__(slab, dtype)
        self._kernels = kernels

    def cast(self) -> Cast:
        """Return the weights in the layouts of both passes, and the biases."""
        return self._kernels.pack(self.slab.weight.value), self.slab.bias.value

    def infer_layers(self, x: Tensor, cast: Cast) -> Tensor:
        """Return the outputs of the last layer."""
        x = grouped(x)
        out = torch.empty_like(x)
        self._kernels.forward(x, cast[0][0], cast[1], out, keep=False)
        return ungrouped(out)

    def forward_layers(self, x: Tensor, cast: Cast) -> tuple[Tensor, Tensor]:
        """Return the inputs and the outputs of all layers, ``[layers, networks, images, groups, pixels, 8]``."""
        x = grouped(x)
        samples = x.new_empty(len(cast[1]) + 1, *x.shape)
        samples[0].copy_(x)
        self._kernels.forward(samples[0], cast[0][0], cast[1], samples[1:], keep=True)
        return samples[:-1], samples[1:]

    def last_of(self, outputs: Tensor) -> Tensor:
        """Return the outputs of the last layer in the layout of other links."""
        return ungrouped(outputs[-1])

    def backward(self, grad: Tensor, saved: Any, *, first: bool) -> Tensor | None:
        """Fill the gradients of the slab and their norms; return that of the input unless this run is `first`."""
        input_grad = super().backward(grouped(grad), saved, first=first)
        return None if input_grad is None else ungrouped(input_grad)

    def backward_layers(
        self, grad: Tensor, inputs: Tensor, outputs: Tensor, weights: Tensor, start: int, *, input_grad: bool
    ) -> Tensor:
        """Fill the gradients of some layers, and return that of their input (if `input_grad`)."""
        z_grads, x_grad = torch.empty_like(outputs), torch.empty_like(grad)
        activation_backward(grad, outputs[-1], z_grads[-1], self.stage.activation)
        stop, leaf = start + len(outputs), self.slab.weight
        self._kernels.backward(z_grads, inputs, weights[1, start:stop], x_grad if input_grad else None)
        assert leaf.off is not None, "weights have masks"
        off, weight_grad = leaf.off[start:stop].view(torch.uint8), leaf.gradient[start:stop]
        leaf.norms[start:stop] = self._kernels.weight_grad(z_grads, inputs, off, weight_grad)
        self._kernels.bias_grad(z_grads, self.slab.bias.gradient[start:stop])
        return x_grad

    def mask_gradients(self) -> None:
        """Compute the norms of the gradients of biases: those of weights are masked and have norms already."""
        torch.linalg.vector_norm(self.slab.bias.gradient, dim=2, out=self.slab.bias.norms)
