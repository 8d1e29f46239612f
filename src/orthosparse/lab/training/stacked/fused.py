"""Runs of equal layers by our own GPU kernels: fewer launches and fewer trips to memory than torch's operations need.

They take runs of square layers with tanh whose width is a power of two: linear ones, and convolutions of stride 1. On
other layers, in float64 and without Triton, torch's own operations remain. On Hopper and with nvcc, the convolutions of
the paper's deepest network have kernels in CUDA instead of Triton.
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
    """Return the run of a slab by our kernels, where it fits them and they are wanted; else by torch's operations."""
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
    """Return whether our kernels are to be used; None does so on a GPU where Triton is installed.

    Raises:
        ValueError: they are asked for, and there is no Triton or no GPU.
    """
    there, on_gpu = find_spec("triton") is not None, device.type == "cuda"
    if fused is None:
        return there and on_gpu
    # Asked for, they run anywhere by Triton's interpreter, slowly.
    if fused and not (there and (on_gpu or os.environ.get("TRITON_INTERPRET") == "1")):
        raise ValueError(f"fused: expected Triton and a GPU; got {device}{'' if there else ', and no Triton'}")
    return fused


def fits(stage: Stage, dtype: torch.dtype) -> bool:
    """Return whether our kernels compute such layers."""
    square = stage.inputs == stage.outputs and stage.inputs in _WIDTHS and stage.blocks is None
    plain = stage.grid is None or (stage.grid.stride == 1 and stage.grid.circular)
    return square and plain and stage.activation == "tanh" and dtype in (torch.float32, torch.bfloat16)


class _Fused(LayerRun):
    """A run whose gradients of weights are masked, and their norms computed, as they are made."""

    def mask_gradients(self) -> None:
        """Compute the norms of the gradients of biases."""
        torch.linalg.vector_norm(self.slab.bias.gradient, dim=2, out=self.slab.bias.norms)


class FusedLinear(_Fused):
    """Linear layers: all of them in one launch forward, a chunk of them in one backward; samples stay transposed."""

    def __init__(self, slab: Slab, dtype: torch.dtype) -> None:
        super().__init__(slab, dtype)
        self._seen = -1

    def cast(self) -> Cast:
        """Return weights and biases in the type of the products; the updates keep a copy that is rounded to TF32."""
        value = self.slab.weight.value
        if not rounds(value) or self.dtype != torch.float32:
            return super().cast()
        if self.slab.rounded is None:
            self.slab.rounded = torch.empty_like(value)
        if self._seen != value._version:  # our kernels do not count; whoever else writes does
            self.slab.rounded.copy_(rounded(value))
            self._seen = value._version
        return self.slab.rounded, self.slab.bias.value

    def last_of(self, outputs: Tensor) -> Tensor:
        """Return the outputs of the last layer as others have them."""
        return outputs[-1].transpose(1, 2).contiguous()

    def infer_layers(self, x: Tensor, cast: Cast) -> Tensor:
        """Return the outputs of the last layer."""
        out = self.new_output(x)
        launches.chain_forward(x, *cast, out, len(cast[0]), keep=False)
        return out

    def forward_layers(self, x: Tensor, cast: Cast) -> tuple[Tensor, Tensor]:
        """Return the inputs and the outputs of all layers, ``[layers, networks, width, batch]``."""
        both = x.new_empty(len(cast[0]) + 1, len(x), x.shape[2], x.shape[1])
        both[0].copy_(rounded(x.transpose(1, 2)))
        launches.chain_forward(x, *cast, both[1:], len(cast[0]), keep=True)
        return both[:-1], both[1:]

    def backward_layers(
        self, grad: Tensor, inputs: Tensor, outputs: Tensor, weights: Tensor, start: int, *, input_grad: bool
    ) -> Tensor:
        """Go back through some layers, fill their gradients, and return that of their input."""
        del input_grad  # the kernel computes it in any case
        before, found = launches.chain_backward(grad, outputs, weights[start:])
        launches.weight_grad(self.slab, before, inputs, start, grad.shape[1], transposed=True)
        return found


class FusedCircular(_Fused):
    """Convolutions: one launch a layer, activation and its derivative included; padding is never laid out."""

    def __init__(self, slab: Slab, dtype: torch.dtype) -> None:
        super().__init__(slab, dtype)
        assert slab.stage.grid is not None, "a convolution"
        self.grid = slab.stage.grid

    def cast(self) -> Cast:
        """Return weights and biases in the type of the products."""
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
        both = x.new_empty(len(cast[0]) + 1, *x.shape)
        both[0].copy_(rounded(x))
        for layer, (weight, bias) in enumerate(zip(*cast, strict=True)):
            launches.convolve(both[layer], weight, bias, both[layer + 1], self.grid)
        return both[:-1], both[1:]

    def backward_layers(
        self, grad: Tensor, inputs: Tensor, outputs: Tensor, weights: Tensor, start: int, *, input_grad: bool
    ) -> Tensor:
        """Go back through some layers, fill their gradients, and return that of their input (if `input_grad`)."""
        before, found = torch.empty_like(outputs), torch.empty_like(grad)
        activation_backward(grad, outputs[-1], before[-1], self.stage.activation)
        before[-1].copy_(rounded(before[-1]))
        for place in reversed(range(1, len(outputs))):
            weight, y = weights[start + place], outputs[place - 1]
            launches.convolve_backward(before[place], weight, y, before[place - 1], self.grid)
        if input_grad:
            launches.convolve_backward(before[0], weights[start], None, found, self.grid)
        launches.weight_grad(self.slab, before, inputs, start, grad.shape[1] * self.grid.height * self.grid.width)
        self.bias_grad(before, start)
        return found
