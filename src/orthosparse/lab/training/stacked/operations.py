"""Layers of stacked networks by torch's own operations: products and their gradients, activations, and the SGD step.

Samples are ``[networks, batch, features]``, weights ``[networks, out, taps * in]``; gradients of weights are computed
for several layers at once, ``[layers, networks, ...]``.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from orthosparse.lab.models.stages import Grid, Stage

_aten = torch.ops.aten

# An activation in place, and its backward pass: (gradient, output, out).
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
    """Write the gradient before an activation to `out`, computed from the gradient and the output of the activation."""
    ACTIVATIONS[activation][1](gradient, output, out)


def sgd_step(
    value: Tensor, gradient: Tensor, momentum: Tensor, stopped: Tensor, lr: Tensor, rule: tuple[float, float, bool]
) -> None:
    """Take a step of SGD with momentum, as `torch.optim.SGD` does; networks that have stopped keep their values.

    Args:
        momentum: the buffer.
        stopped: which networks have stopped, in a shape that broadcasts.
        lr: the learning rate of each network; 0 for those that have stopped.
        rule: weight decay, momentum factor, and whether it is Nesterov's.
    """
    weight_decay, momentum_factor, nesterov = rule
    gradient.add_(value, alpha=weight_decay)
    torch.add(gradient, momentum, alpha=momentum_factor, out=momentum)
    if nesterov:
        gradient.add_(momentum, alpha=momentum_factor)
    step = gradient if nesterov else momentum
    step.masked_fill_(stopped, 0.0)  # 0 times a number that is not finite is NaN
    value.addcmul_(step, lr, value=-1.0)


class Product(Protocol):
    """The linear operation of a layer."""

    def forward(self, x: Tensor, weight: Tensor, out: Tensor) -> None:
        """Write the product of the samples with the weights to `out`."""

    def transposed(self, weights: Tensor) -> Tensor:
        """Return the weights of several layers in the layout that `backward` takes, layer by layer."""

    def backward(self, grad: Tensor, transposed: Tensor) -> Tensor:
        """Return the gradient of the samples."""

    def weight_grad(self, grads: Tensor, xs: Tensor, out: Tensor) -> None:
        """Write the gradients of the weights of several layers to `out`."""


class Matrices:
    """Linear layers: one batched product."""

    def __init__(self, stage: Stage) -> None:
        del stage  # the tensors have all shapes

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
    """Convolutions with circular padding by torch's own kernels, one network at a time; padding is one gather."""

    def __init__(self, stage: Stage) -> None:
        assert stage.grid is not None, "a convolution"
        self.stage, self.grid = stage, stage.grid
        halo = self.grid.kernel - 1
        height, width = self.grid.height + halo, self.grid.width + halo
        self._padded_grid = replace(self.grid, height=height, width=width, padding=0)
        self._pad = _Gather(padded(self.grid), self.grid.height * self.grid.width)

    def forward(self, x: Tensor, weight: Tensor, out: Tensor) -> None:
        """Write the convolution of the padded samples."""
        for sample, kernel, result in zip(x, weight, out, strict=True):
            padded_sample = self._pad(sample, self.stage.inputs)
            result.view(-1, self.stage.outputs).copy_(convolved(padded_sample, kernel, self._padded_grid))

    def transposed(self, weights: Tensor) -> Tensor:
        """Return the kernels flipped, ``[layers, networks, in, taps * out]``."""
        return flipped(weights, self.stage).transpose(2, 3).contiguous()

    def backward(self, grad: Tensor, transposed: Tensor) -> Tensor:
        """Return the convolution of the padded gradient with the flipped kernel."""
        pairs = zip(spread_out(grad, self.grid, self.stage.outputs), transposed, strict=True)
        grid = replace(self._padded_grid, stride=1)
        maps = [convolved(self._pad(spread, self.stage.outputs), kernel, grid) for spread, kernel in pairs]
        return torch.stack([x_grad.view(grad.shape[1], -1) for x_grad in maps])

    def weight_grad(self, grads: Tensor, xs: Tensor, out: Tensor) -> None:
        """Write the gradients by torch's own backward pass."""
        for grad, x, result in zip(grads.flatten(0, 1), xs.flatten(0, 1), out.flatten(0, 1), strict=True):
            rows, padded_x = grad.view(-1, self.stage.outputs), self._pad(x, self.stage.inputs)
            result.copy_(weight_grad(rows, padded_x, result.to(x.dtype), self._padded_grid))


class ZeroPadded:
    """Convolutions padded with zeros by torch's own kernels, one network at a time."""

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
        """Return the gradients by torch's own backward pass."""
        pairs = zip(self._rows(grad, self.stage.outputs), transposed, strict=True)
        return torch.stack([input_grad(rows, kernel, self.grid).view(grad.shape[1], -1) for rows, kernel in pairs])

    def weight_grad(self, grads: Tensor, xs: Tensor, out: Tensor) -> None:
        """Write the gradients by torch's own backward pass."""
        for grad, x, result in zip(grads.flatten(0, 1), xs.flatten(0, 1), out.flatten(0, 1), strict=True):
            rows, x_rows = grad.view(-1, self.stage.outputs), x.view(-1, self.stage.inputs)
            result.copy_(weight_grad(rows, x_rows, result.to(x.dtype), self.grid))

    @staticmethod
    def _rows(x: Tensor, channels: int) -> Tensor:
        return x.view(len(x), -1, channels)


def product_of(stage: Stage) -> Product:
    """Return the product of a stage."""
    if stage.grid is None:
        return Matrices(stage)
    return Circular(stage) if stage.grid.circular else ZeroPadded(stage)


def padded(grid: Grid) -> Tensor:
    """Return the index of the pixel that each pixel of the padded map copies."""
    pad = grid.kernel // 2
    rows = torch.arange(-pad, grid.height + pad) % grid.height
    columns = torch.arange(-pad, grid.width + pad) % grid.width
    return (rows[:, None] * grid.width + columns).flatten()


def spread_out(grad: Tensor, grid: Grid, channels: int) -> Tensor:
    """Return the gradient of a strided convolution at the pixels where its kernels were centered, zero elsewhere."""
    if grid.stride == 1:
        return grad
    spread = grad.new_zeros(*grad.shape[:2], grid.height, grid.width, channels)
    centers = spread[:, :, :: grid.stride, :: grid.stride]
    centers.copy_(grad.view(centers.shape))
    return spread.flatten(2)


def flipped(weights: Tensor, stage: Stage) -> Tensor:
    """Return kernels ``[..., out, taps * in]`` flipped, as ``[..., taps * out, in]``."""
    kernels = weights.view(*weights.shape[:-1], -1, stage.inputs)
    return kernels.flip(-2).transpose(-3, -2).flatten(-3, -2)


class _Gather:
    """Gathers pixels of maps, the same ones of every sample.

    All samples form one matrix with a row for each pixel: copying its rows is the fastest gather in torch.
    """

    def __init__(self, index: Tensor, pixels: int) -> None:
        self._index, self._pixels = index, pixels
        self._indices: dict[tuple[torch.device, int], Tensor] = {}  # by device and number of samples

    def __call__(self, samples: Tensor, channels: int) -> Tensor:
        """Return the gathered pixels of samples ``[count, pixels * channels]``, one in each row."""
        key = samples.device, len(samples)
        if key not in self._indices:  # while a graph is warmed up, not while it is captured
            offsets = torch.arange(len(samples))[:, None] * self._pixels
            self._indices[key] = (offsets + self._index).flatten().to(samples.device)
        return samples.reshape(-1, channels).index_select(0, self._indices[key])


def _product_into(out: Tensor, a: Tensor, b: Tensor) -> None:
    """Write a batched product to `out`, which may have another dtype: gradients in float32 of bfloat16 products."""
    if out.dtype == a.dtype:
        torch.bmm(a, b, out=out)
    else:
        out.copy_(torch.bmm(a, b))


def convolved(x: Tensor, weight: Tensor, grid: Grid) -> Tensor:
    """Return the convolution of rows ``[pixels, channels]``, padded with zeros as the grid says."""
    maps, kernel = _maps(x, grid.height, grid.width), _kernel(weight, grid, x.shape[1])
    out = functional.conv2d(maps, kernel, stride=grid.stride, padding=grid.pad)
    return out.permute(0, 2, 3, 1).reshape(-1, len(weight))


def input_grad(grad: Tensor, weight: Tensor, grid: Grid) -> Tensor:
    """Return the gradient of the input of a convolution, in rows."""
    channels = weight.shape[1] // grid.kernel**2
    images = len(grad) // (grid.out_height * grid.out_width)
    maps = grad.new_empty(1).expand(images, channels, grid.height, grid.width)  # only its shape is used
    kernel = _kernel(weight, grid, channels)
    (x_grad, _, _) = _convolution_backward(grad, maps, kernel, grid, [True, False, False])
    return x_grad.permute(0, 2, 3, 1).reshape(-1, channels)


def weight_grad(grad: Tensor, x: Tensor, weight: Tensor, grid: Grid) -> Tensor:
    """Return the gradient of the weights of a convolution."""
    maps, kernel = _maps(x, grid.height, grid.width), _kernel(weight, grid, x.shape[1])
    (_, gradient, _) = _convolution_backward(grad, maps, kernel, grid, [False, True, False])
    return gradient.permute(0, 2, 3, 1).reshape(weight.shape)


def _convolution_backward(
    grad: Tensor, maps: Tensor, kernel: Tensor, grid: Grid, output_mask: list[bool]
) -> tuple[Tensor, ...]:
    grad_maps, pad = _maps(grad, grid.out_height, grid.out_width), [grid.pad] * 2
    gradients: tuple[Tensor, ...] = torch.ops.aten.convolution_backward(
        grad_maps, maps, kernel, None, [grid.stride] * 2, pad, [1, 1], False, [0, 0], 1, output_mask
    )
    return gradients


def _maps(rows: Tensor, height: int, width: int) -> Tensor:
    """Return rows as maps ``[images, channels, height, width]``, channels innermost in memory."""
    return rows.view(-1, height, width, rows.shape[1]).permute(0, 3, 1, 2)


def _kernel(weight: Tensor, grid: Grid, channels: int) -> Tensor:
    return weight.view(-1, grid.kernel, grid.kernel, channels).permute(0, 3, 1, 2)
