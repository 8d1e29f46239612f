"""Runs of equal layers by our own GPU kernels: fewer launches and less memory traffic than torch's operations.

They compute runs of square layers with tanh whose width is a power of two: linear layers, and circular convolutions of
stride 1. Torch's own operations compute all other layers, and all layers in float64 and without Triton. On Hopper and
with nvcc, the convolutions of the paper's deepest network use kernels in CUDA instead of Triton.
"""

import os
from importlib.util import find_spec

import torch
from torch import Tensor

from orthosparse.lab.models.stages import Stage
from orthosparse.lab.training.stacked import circular_launches, launches
from orthosparse.lab.training.stacked.chain import Cast, LayerRun
from orthosparse.lab.training.stacked.circular_run import CircularRun
from orthosparse.lab.training.stacked.launches import rounded, rounds
from orthosparse.lab.training.stacked.operations import activation_backward
from orthosparse.lab.training.stacked.slab import Slab

_WIDTHS = (16, 32, 64, 128)


def run_of(slab: Slab, dtype: torch.dtype, fused: bool | None) -> LayerRun:
    """Return the run of a slab by our kernels if they fit and are chosen, else by torch's operations."""
    slow = fused is None and slab.stage.grid is not None and dtype != torch.bfloat16
    if not chosen(fused, slab.weight.value.device) or not fits(slab.stage, dtype) or slow:
        return LayerRun(slab, dtype)
    if slab.stage.grid is None:
        return FusedLinear(slab, dtype)
    if circular_launches.fits(slab.stage, dtype):
        kernels = circular_launches.kernels_for(slab.weight.value.device)
        if kernels is not None:
            return CircularRun(slab, dtype, kernels)
    return FusedCircular(slab, dtype)


def chosen(fused: bool | None, device: torch.device) -> bool:
    """Return whether our kernels are to be used; None means on a GPU, if Triton is installed.

    Raises:
        ValueError: `fused` is true, and there is no Triton or no GPU.
    """
    has_triton, on_gpu = find_spec("triton") is not None, device.type == "cuda"
    if fused is None:
        return has_triton and on_gpu
    # Triton's interpreter runs them on any device, slowly.
    if fused and not (has_triton and (on_gpu or os.environ.get("TRITON_INTERPRET") == "1")):
        raise ValueError(f"fused: expected Triton and a GPU; got {device}{'' if has_triton else ', and no Triton'}")
    return fused


def fits(stage: Stage, dtype: torch.dtype) -> bool:
    """Return whether our kernels compute such layers."""
    square = stage.inputs == stage.outputs and stage.inputs in _WIDTHS and stage.blocks is None
    plain = stage.grid is None or (stage.grid.stride == 1 and stage.grid.circular)
    return square and plain and stage.activation == "tanh" and dtype in (torch.float32, torch.bfloat16)


class _Fused(LayerRun):
    """A run whose kernels mask the gradients of weights and compute their norms."""

    def mask_gradients(self) -> None:
        """Compute the norms of the gradients of biases."""
        torch.linalg.vector_norm(self.slab.bias.gradient, dim=2, out=self.slab.bias.norms)


class FusedLinear(_Fused):
    """Linear layers: one launch for all of them forward, one for each chunk backward; samples are saved transposed."""

    def __init__(self, slab: Slab, dtype: torch.dtype) -> None:
        super().__init__(slab, dtype)
        self._rounded_version = -1

    def cast(self) -> Cast:
        """Return weights and biases in the dtype of products; the SGD step keeps a copy that is rounded to TF32."""
        value = self.slab.weight.value
        if not rounds(value) or self.dtype != torch.float32:
            return super().cast()
        if self.slab.rounded is None:
            self.slab.rounded = torch.empty_like(value)
        if self._rounded_version != value._version:  # written by torch's operations: our kernels do not change it
            self.slab.rounded.copy_(rounded(value))
            self._rounded_version = value._version
        return self.slab.rounded, self.slab.bias.value

    def last_of(self, outputs: Tensor) -> Tensor:
        """Return the outputs of the last layer in the layout of other links."""
        return outputs[-1].transpose(1, 2).contiguous()

    def infer_layers(self, x: Tensor, cast: Cast) -> Tensor:
        """Return the outputs of the last layer."""
        out = self.new_output(x)
        launches.chain_forward(x, *cast, out, len(cast[0]), keep=False)
        return out

    def forward_layers(self, x: Tensor, cast: Cast) -> tuple[Tensor, Tensor]:
        """Return the inputs and the outputs of all layers, ``[layers, networks, width, batch]``."""
        samples = x.new_empty(len(cast[0]) + 1, len(x), x.shape[2], x.shape[1])
        samples[0].copy_(rounded(x.transpose(1, 2)))
        launches.chain_forward(x, *cast, samples[1:], len(cast[0]), keep=True)
        return samples[:-1], samples[1:]

    def backward_layers(
        self, grad: Tensor, inputs: Tensor, outputs: Tensor, weights: Tensor, start: int, *, input_grad: bool
    ) -> Tensor:
        """Fill the gradients of some layers, and return that of their input."""
        del input_grad  # the kernel computes it in any case
        z_grads, x_grad = launches.chain_backward(grad, outputs, weights[start:])
        launches.weight_grad(self.slab, z_grads, inputs, start, grad.shape[1], transposed=True)
        return x_grad


class FusedCircular(_Fused):
    """Circular convolutions: one launch a layer, including the activation or its derivative; without padded copies."""

    def __init__(self, slab: Slab, dtype: torch.dtype) -> None:
        super().__init__(slab, dtype)
        assert slab.stage.grid is not None, "a convolution"
        self.grid = slab.stage.grid

    def cast(self) -> Cast:
        """Return weights and biases in the dtype of products."""
        weights, biases = super().cast()
        return rounded(weights), biases

    def infer_layers(self, x: Tensor, cast: Cast) -> Tensor:
        """Return the outputs of the last layer."""
        x = rounded(x)
        for weight, bias in zip(*cast, strict=True):
            out = self.new_output(x)
            launches.convolve(x, weight, bias, out, self.grid)
            x = out
        return x

    def forward_layers(self, x: Tensor, cast: Cast) -> tuple[Tensor, Tensor]:
        """Return the inputs and the outputs of all layers, each in one tensor."""
        samples = x.new_empty(len(cast[0]) + 1, *x.shape)
        samples[0].copy_(rounded(x))
        for layer, (weight, bias) in enumerate(zip(*cast, strict=True)):
            launches.convolve(samples[layer], weight, bias, samples[layer + 1], self.grid)
        return samples[:-1], samples[1:]

    def backward_layers(
        self, grad: Tensor, inputs: Tensor, outputs: Tensor, weights: Tensor, start: int, *, input_grad: bool
    ) -> Tensor:
        """Fill the gradients of some layers, and return that of their input (if `input_grad`)."""
        z_grads, x_grad = torch.empty_like(outputs), torch.empty_like(grad)
        activation_backward(grad, outputs[-1], z_grads[-1], self.stage.activation)
        z_grads[-1].copy_(rounded(z_grads[-1]))
        for layer in reversed(range(1, len(outputs))):
            weight, y = weights[start + layer], outputs[layer - 1]
            launches.convolve_backward(z_grads[layer], weight, y, z_grads[layer - 1], self.grid)
        if input_grad:
            launches.convolve_backward(z_grads[0], weights[start], None, x_grad, self.grid)
        launches.weight_grad(self.slab, z_grads, inputs, start, grad.shape[1] * self.grid.height * self.grid.width)
        self.bias_grad(z_grads, start)
        return x_grad
