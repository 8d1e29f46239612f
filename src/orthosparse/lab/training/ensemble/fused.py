"""Runs of equal layers by our own GPU kernels: fewer launches and fewer trips to memory than torch's operations need.

They take runs of square layers with tanh whose width is a power of two: linear ones, and convolutions of stride 1. On
other layers, in float64 and without Triton, torch's own operations remain.
"""

import os
from importlib.util import find_spec

import torch
from torch import Tensor

from orthosparse.lab.training.ensemble import launches, pointwise
from orthosparse.lab.training.ensemble.launches import rounded, rounds
from orthosparse.lab.training.ensemble.plain import Cast, Run
from orthosparse.lab.training.ensemble.slab import Slab
from orthosparse.lab.training.ensemble.stages import Stage
from orthosparse.lab.training.ensemble.ways import Ways

_WIDTHS = (16, 32, 64, 128)


def run_of(slab: Slab, dtype: torch.dtype, ways: Ways) -> Run:
    """Return the run of a slab by our kernels, where it fits them and `ways` has them; else the plain one."""
    slow = ways.fused is None and slab.stage.grid is not None and dtype != torch.bfloat16
    if not chosen(ways, slab.weight.value.device) or not fits(slab.stage, dtype) or slow:
        return Run(slab, dtype, ways)
    kind = FusedMatrices if slab.stage.grid is None else FusedMaps
    return kind(slab, dtype, ways)


def chosen(ways: Ways, device: torch.device) -> bool:
    """Return whether our kernels are to be used.

    Raises:
        ValueError: they are asked for, and there is no Triton or no GPU.
    """
    there, on_gpu = find_spec("triton") is not None, device.type == "cuda"
    if ways.fused is None:
        return there and on_gpu
    # Asked for, they run anywhere by Triton's interpreter, slowly.
    if ways.fused and not (there and (on_gpu or os.environ.get("TRITON_INTERPRET") == "1")):
        raise ValueError(f"fused: expected Triton and a GPU; got {device}{'' if there else ', and no Triton'}")
    return ways.fused


def fits(stage: Stage, dtype: torch.dtype) -> bool:
    """Return whether our kernels compute such layers."""
    square = stage.inputs == stage.outputs and stage.inputs in _WIDTHS and stage.blocks is None
    strided = stage.grid is not None and stage.grid.stride != 1
    return square and not strided and stage.activation == "tanh" and dtype in (torch.float32, torch.bfloat16)


class _Fused(Run):
    """A run whose gradients of weights are masked, and their norms taken, as they are made."""

    def measure(self) -> None:
        """Take the norms of the gradients of biases."""
        torch.linalg.vector_norm(self.slab.bias.gradient, dim=2, out=self.slab.bias.norms)


class FusedMatrices(_Fused):
    """Linear layers: all of them in one launch ahead, and a chunk of them in one back; what is kept is turned."""

    def __init__(self, slab: Slab, dtype: torch.dtype, ways: Ways) -> None:
        super().__init__(slab, dtype, ways)
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

    def advance(self, x: Tensor, start: int, stop: int, cast: Cast) -> Tensor:
        """Return the outputs of layer ``stop - 1`` for the inputs of layer `start`."""
        out = self.empty(x)
        launches.chain_ahead(x, cast[0][start:], cast[1][start:], out, stop - start, keep=False)
        return out

    def samples(self, x: Tensor, start: int, stop: int, cast: Cast) -> tuple[Tensor, Tensor]:
        """Return the inputs and the outputs of some layers, ``[layers, members, width, batch]``."""
        both = x.new_empty(stop - start + 1, len(x), x.shape[2], x.shape[1])
        both[0].copy_(rounded(x.transpose(1, 2)))
        launches.chain_ahead(x, cast[0][start:], cast[1][start:], both[1:], stop - start, keep=True)
        return both[:-1], both[1:]

    def chunk(
        self, grad: Tensor, inputs: Tensor, outputs: Tensor, weights: Tensor, start: int, *, last: bool
    ) -> Tensor:
        """Go back through some layers, fill their gradients, and return that of their input."""
        del last  # the gradient of the input is the last of what the kernel has anyway
        before, found = launches.chain_back(grad, outputs, weights[start:])
        launches.weigh(self.slab, before, inputs, start, grad.shape[1], turned=True)
        return found


class FusedMaps(_Fused):
    """Convolutions: one launch a layer, activation and its derivative included; padding is never laid out."""

    def __init__(self, slab: Slab, dtype: torch.dtype, ways: Ways) -> None:
        super().__init__(slab, dtype, ways)
        assert slab.stage.grid is not None, "a convolution"
        self.grid = slab.stage.grid

    def cast(self) -> Cast:
        """Return weights and biases in the type of the products."""
        weights, biases = super().cast()
        return rounded(weights), biases

    def advance(self, x: Tensor, start: int, stop: int, cast: Cast) -> Tensor:
        """Return the outputs of layer ``stop - 1`` for the inputs of layer `start`."""
        x = rounded(x)
        for layer in range(start, stop):
            out = self.empty(x)
            launches.convolve(x, cast[0][layer], cast[1][layer], out, self.grid)
            x = out
        return x

    def samples(self, x: Tensor, start: int, stop: int, cast: Cast) -> tuple[Tensor, Tensor]:
        """Return the inputs and the outputs of some layers, each in one tensor."""
        both = x.new_empty(stop - start + 1, *x.shape)
        both[0].copy_(rounded(x))
        for place in range(stop - start):
            layer = start + place
            launches.convolve(both[place], cast[0][layer], cast[1][layer], both[place + 1], self.grid)
        return both[:-1], both[1:]

    def chunk(
        self, grad: Tensor, inputs: Tensor, outputs: Tensor, weights: Tensor, start: int, *, last: bool
    ) -> Tensor:
        """Go back through some layers, fill their gradients, and return that of their input (unless `last`)."""
        before, found = torch.empty_like(outputs), torch.empty_like(grad)
        pointwise.unbend(grad, outputs[-1], before[-1], self.stage.activation)
        before[-1].copy_(rounded(before[-1]))
        for place in reversed(range(1, len(outputs))):
            weight, y = weights[start + place], outputs[place - 1]
            launches.convolve_back(before[place], weight, y, before[place - 1], self.grid)
        if not last:
            launches.convolve_back(before[0], weights[start], None, found, self.grid)
        launches.weigh(self.slab, before, inputs, start, grad.shape[1] * self.grid.height * self.grid.width)
        self.sum_up(before, start)
        return found
