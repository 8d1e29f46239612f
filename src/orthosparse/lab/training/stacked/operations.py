"""Layers of stacked networks by torch's own operations: products and their gradients, activations, and the SGD step.

Samples are ``[networks, batch, features]``, weights ``[networks, out, taps * in]``; gradients of weights are computed
for several layers together, ``[layers, networks, ...]``.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from orthosparse.lab.models.stages import Grid, Stage

_aten = torch.ops.aten

# Activation in place, and its derivative by what it gave: (gradient, output, where to write).
_Activation = tuple[Callable[[Tensor], Any], Callable[[Tensor, Tensor, Tensor], Any]]
SELU_ALPHA, SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946
ACTIVATIONS: dict[str, _Activation] = {
    "hardtanh": (
        lambda z: torch.nn.functional.hardtanh_(z),
        lambda g, y, out: _aten.hardtanh_backward.grad_input(g, y, -1.0, 1.0, grad_input=out),
    ),
    "leaky_relu": (
        lambda z: torch.nn.functional.leaky_relu_(z),
        lambda g, y, out: _aten.leaky_relu_backward.grad_input(g, y, 0.01, True, grad_input=out),
    ),
    "linear": (lambda z: z, lambda g, _, out: out.copy_(g)),
    "relu": (
        lambda z: z.relu_(),
        lambda g, y, out: _aten.threshold_backward.grad_input(g, y, 0.0, grad_input=out),
    ),
    "selu": (
        lambda z: torch.selu_(z),
        lambda g, y, out: _aten.elu_backward.grad_input(g, SELU_ALPHA, SELU_SCALE, 1.0, True, y, grad_input=out),
    ),
    "tanh": (
        lambda z: z.tanh_(),
        lambda g, y, out: _aten.tanh_backward.grad_input(g, y, grad_input=out),
    ),
}


def activate_(product: Tensor, bias: Tensor, activation: str) -> None:
    """Replace a product by the activation of ``product + bias``."""
    ACTIVATIONS[activation][0](product.add_(bias))


def activation_backward(gradient: Tensor, output: Tensor, out: Tensor, activation: str) -> None:
    """Write the gradient before an activation to `out`: `gradient` times its derivative, which the output tells."""
    ACTIVATIONS[activation][1](gradient, output, out)


def sgd_step(
    value: Tensor, gradient: Tensor, momentum: Tensor, dead: Tensor, rate: Tensor, rule: tuple[float, float, bool]
) -> None:
    """Take a step of SGD with momentum, as `torch.optim.SGD` does; networks that have stopped keep their values.

    Args:
        dead: which networks have stopped, in a shape that broadcasts.
        rate: of each network; 0 where it has stopped.
        rule: weight decay, momentum, and whether it is Nesterov's.
    """
    decay, inertia, nesterov = rule
    gradient.add_(value, alpha=decay)
    torch.add(gradient, momentum, alpha=inertia, out=momentum)
    if nesterov:
        gradient.add_(momentum, alpha=inertia)
    step = gradient if nesterov else momentum
    step.masked_fill_(dead, 0.0)  # 0 times what is not finite would not be 0
    value.addcmul_(step, rate, value=-1.0)


class Product(Protocol):
    """What a stage does between its activations."""

    def forward(self, x: Tensor, weight: Tensor, out: Tensor) -> None:
        """Write the product of the samples with the weights to `out`."""

    def transposed(self, weights: Tensor) -> Tensor:
        """Return the weights of several layers as `backward` takes them, one layer after the other."""

    def backward(self, grad: Tensor, transposed: Tensor) -> Tensor:
        """Return the gradient of the samples."""

    def weight_grad(self, grads: Tensor, xs: Tensor, out: Tensor) -> None:
        """Write the gradients of the weights of several layers to `out`."""


class Matrices:
    """Linear layers: one batched product."""

    def __init__(self, stage: Stage) -> None:
        del stage  # the shapes of the tensors say it all

    def forward(self, x: Tensor, weight: Tensor, out: Tensor) -> None:
        """Write ``x W^T``."""
        torch.bmm(x, weight.transpose(1, 2), out=out)

    def transposed(self, weights: Tensor) -> Tensor:
        """Return the weights as they are."""
        return weights

    def backward(self, grad: Tensor, transposed: Tensor) -> Tensor:
        """Return ``grad W``."""
        return torch.bmm(grad, transposed)

    def weight_grad(self, grads: Tensor, xs: Tensor, out: Tensor) -> None:
        """Write ``grad^T x`` of all the layers in one call."""
        _product_into(out.flatten(0, 1), grads.flatten(0, 1).transpose(1, 2), xs.flatten(0, 1))


class Circular:
    """Convolutions with circular padding by torch's own kernels, network after network; padding is one gather."""

    def __init__(self, stage: Stage) -> None:
        assert stage.grid is not None, "a convolution"
        self.stage, self.grid = stage, stage.grid
        edge = self.grid.kernel - 1
        height, width = self.grid.height + edge, self.grid.width + edge
        self._around = replace(self.grid, height=height, width=width, padding=0)  # on the padded map
        self._padded = _Gather(padded(self.grid), self.grid.height * self.grid.width)

    def forward(self, x: Tensor, weight: Tensor, out: Tensor) -> None:
        """Write the convolution of the padded samples."""
        for sample, kernel, result in zip(x, weight, out, strict=True):
            seen = self._padded(sample, self.stage.inputs)
            result.view(-1, self.stage.outputs).copy_(convolved(seen, kernel, self._around))

    def transposed(self, weights: Tensor) -> Tensor:
        """Return the kernels flipped, ``[layers, networks, in, taps * out]``."""
        return flipped(weights, self.stage).transpose(2, 3).contiguous()

    def backward(self, grad: Tensor, transposed: Tensor) -> Tensor:
        """Return the convolution of the padded gradient with the flipped kernel."""
        both = zip(spread_out(grad, self.grid, self.stage.outputs), transposed, strict=True)
        around = replace(self._around, stride=1)
        maps = [convolved(self._padded(one, self.stage.outputs), kernel, around) for one, kernel in both]
        return torch.stack([found.view(grad.shape[1], -1) for found in maps])

    def weight_grad(self, grads: Tensor, xs: Tensor, out: Tensor) -> None:
        """Write the gradients that torch's own backward pass gives."""
        for grad, x, result in zip(grads.flatten(0, 1), xs.flatten(0, 1), out.flatten(0, 1), strict=True):
            rows, seen = grad.view(-1, self.stage.outputs), self._padded(x, self.stage.inputs)
            result.copy_(weight_grad(rows, seen, result.to(x.dtype), self._around))


class ZeroPadded:
    """Convolutions padded with zeros by torch's own kernels, one network after the other."""

    def __init__(self, stage: Stage) -> None:
        assert stage.grid is not None, "a convolution"
        self.stage, self.grid = stage, stage.grid

    def forward(self, x: Tensor, weight: Tensor, out: Tensor) -> None:
        """Write the convolution of the samples."""
        for sample, kernel, result in zip(self._rows(x, self.stage.inputs), weight, out, strict=True):
            result.view(-1, self.stage.outputs).copy_(convolved(sample, kernel, self.grid))

    def transposed(self, weights: Tensor) -> Tensor:
        """Return the weights as they are."""
        return weights

    def backward(self, grad: Tensor, transposed: Tensor) -> Tensor:
        """Return the gradients that torch's own backward pass gives."""
        both = zip(self._rows(grad, self.stage.outputs), transposed, strict=True)
        return torch.stack([input_grad(one, kernel, self.grid).view(grad.shape[1], -1) for one, kernel in both])

    def weight_grad(self, grads: Tensor, xs: Tensor, out: Tensor) -> None:
        """Write the gradients that torch's own backward pass gives."""
        for grad, x, result in zip(grads.flatten(0, 1), xs.flatten(0, 1), out.flatten(0, 1), strict=True):
            rows, seen = grad.view(-1, self.stage.outputs), x.view(-1, self.stage.inputs)
            result.copy_(weight_grad(rows, seen, result.to(x.dtype), self.grid))

    @staticmethod
    def _rows(x: Tensor, channels: int) -> Tensor:
        return x.view(len(x), -1, channels)


def product_of(stage: Stage) -> Product:
    """Return the product of a stage."""
    if stage.grid is None:
        return Matrices(stage)
    return Circular(stage) if stage.grid.circular else ZeroPadded(stage)


def padded(grid: Grid) -> Tensor:
    """Return which position of the map every position of the padded one holds."""
    pad = grid.kernel // 2
    rows = torch.arange(-pad, grid.height + pad) % grid.height
    columns = torch.arange(-pad, grid.width + pad) % grid.width
    return (rows[:, None] * grid.width + columns).flatten()


def spread_out(grad: Tensor, grid: Grid, channels: int) -> Tensor:
    """Return the gradient of a strided convolution at the places where its outputs had their centres, else zero."""
    if grid.stride == 1:
        return grad
    whole = grad.new_zeros(*grad.shape[:2], grid.height, grid.width, channels)
    seen = whole[:, :, :: grid.stride, :: grid.stride]
    seen.copy_(grad.view(seen.shape))
    return whole.flatten(2)


def flipped(weights: Tensor, stage: Stage) -> Tensor:
    """Return kernels ``[..., out, taps * in]`` flipped, as ``[..., taps * out, in]``."""
    kernels = weights.view(*weights.shape[:-1], -1, stage.inputs)
    return kernels.flip(-2).transpose(-3, -2).flatten(-3, -2)


class _Gather:
    """Picks positions of maps, the same ones of every sample.

    All samples lie in one column of pixels: rows of it are copied, which is the fastest gather that torch has.
    """

    def __init__(self, index: Tensor, positions: int) -> None:
        self._index, self._positions = index, positions
        self._made: dict[tuple[torch.device, int], Tensor] = {}

    def __call__(self, samples: Tensor, channels: int) -> Tensor:
        """Return the pixels that are picked, of samples [count, positions * channels]."""
        place = samples.device, len(samples)
        if place not in self._made:  # while a graph is warmed up, not while it is captured
            offsets = torch.arange(len(samples))[:, None] * self._positions
            self._made[place] = (offsets + self._index).flatten().to(samples.device)
        return samples.reshape(-1, channels).index_select(0, self._made[place])


def _product_into(out: Tensor, one: Tensor, two: Tensor) -> None:
    """Write a batched product to `out`, which may be of another type (float32 masters of bfloat16 products)."""
    if out.dtype == one.dtype:
        torch.bmm(one, two, out=out)
    else:
        out.copy_(torch.bmm(one, two))


def convolved(x: Tensor, weight: Tensor, grid: Grid) -> Tensor:
    """Return the convolution of rows ``[pixels, channels]``, padded with zeros as the grid says."""
    seen, kernel = _map(x, grid.height, grid.width), _kernel(weight, grid, x.shape[1])
    found = functional.conv2d(seen, kernel, stride=grid.stride, padding=grid.pad)
    return found.permute(0, 2, 3, 1).reshape(-1, len(weight))


def input_grad(grad: Tensor, weight: Tensor, grid: Grid) -> Tensor:
    """Return the gradient of the samples."""
    channels = weight.shape[1] // grid.kernel**2
    pictures = len(grad) // (grid.out_height * grid.out_width)
    shape = grad.new_empty(1).expand(pictures, channels, grid.height, grid.width)
    (found, _, _) = _convolution_backward(grad, shape, _kernel(weight, grid, channels), grid, [True, False, False])
    return found.permute(0, 2, 3, 1).reshape(-1, channels)


def weight_grad(grad: Tensor, x: Tensor, weight: Tensor, grid: Grid) -> Tensor:
    """Return the gradient of the weights."""
    seen, kernel = _map(x, grid.height, grid.width), _kernel(weight, grid, x.shape[1])
    (_, found, _) = _convolution_backward(grad, seen, kernel, grid, [False, True, False])
    return found.permute(0, 2, 3, 1).reshape(weight.shape)


def _convolution_backward(
    grad: Tensor, seen: Tensor, kernel: Tensor, grid: Grid, wanted: list[bool]
) -> tuple[Tensor, ...]:
    given, pad = _map(grad, grid.out_height, grid.out_width), [grid.pad] * 2
    found: tuple[Tensor, ...] = torch.ops.aten.convolution_backward(
        given, seen, kernel, None, [grid.stride] * 2, pad, [1, 1], False, [0, 0], 1, wanted
    )
    return found


def _map(rows: Tensor, height: int, width: int) -> Tensor:
    """Return rows as maps in torch's shape, channels innermost in memory."""
    return rows.view(-1, height, width, rows.shape[1]).permute(0, 3, 1, 2)


def _kernel(weight: Tensor, grid: Grid, channels: int) -> Tensor:
    return weight.view(-1, grid.kernel, grid.kernel, channels).permute(0, 3, 1, 2)
