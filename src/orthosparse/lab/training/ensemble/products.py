"""Products of stacked layers: samples with weights, and both gradients, for all members of an ensemble at once.

A member of `PRODUCTS` is made for a stage and has three methods. Samples are ``[members, batch, features]``, weights
``[members, out, taps * in]``; gradients of weights are taken for several layers together, ``[layers, members, ...]``.
"""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from orthosparse.lab.training.ensemble.stages import Grid, Stage


class Product(Protocol):
    """What a stage does between its activations."""

    def ahead(self, x: Tensor, weight: Tensor, out: Tensor) -> Tensor:
        """Return the product of the samples with the weights; it may be written to `out`, or stand elsewhere."""

    def back(self, grad: Tensor, weight: Tensor) -> Tensor:
        """Return the gradient of the samples."""

    def weigh(self, grads: Tensor, xs: Tensor, out: Tensor) -> None:
        """Write the gradients of the weights of several layers to `out`."""


class Matrices:
    """Linear layers: one batched product."""

    def __init__(self, stage: Stage) -> None:
        del stage  # the shapes of the tensors say it all

    def ahead(self, x: Tensor, weight: Tensor, out: Tensor) -> Tensor:
        """Return ``x W^T``."""
        return torch.bmm(x, weight.transpose(1, 2), out=out)

    def back(self, grad: Tensor, weight: Tensor) -> Tensor:
        """Return ``grad W``."""
        return torch.bmm(grad, weight)

    def weigh(self, grads: Tensor, xs: Tensor, out: Tensor) -> None:
        """Write ``grad^T x`` of all the layers in one call."""
        _product_into(out.flatten(0, 1), grads.flatten(0, 1).transpose(1, 2), xs.flatten(0, 1))


class Gathered:
    """Convolutions as batched products: one gather lays out what every output sees, padding included.

    With circular padding the gradient of the samples is itself such a convolution, by the kernel turned round.
    """

    def __init__(self, stage: Stage) -> None:
        assert stage.grid is not None, "a convolution"
        self.stage, self.grid = stage, stage.grid
        self._seen = _Table(lambda: neighbours(self.grid))
        self._around = _Table(lambda: neighbours(Grid(self.grid.height, self.grid.width, self.grid.kernel, 1)))
        self._places = _Table(lambda: places(self.grid))

    def ahead(self, x: Tensor, weight: Tensor, out: Tensor) -> Tensor:
        """Return the product of the gathered samples with the weights."""
        columns = self._columns(x, self._seen.on(x.device), self.stage.inputs)
        torch.bmm(columns, weight.transpose(1, 2), out=out.view(len(x), -1, self.stage.outputs))
        return out

    def back(self, grad: Tensor, weight: Tensor) -> Tensor:
        """Return the convolution of the gradient, spread out over the stride, with the kernel turned round."""
        spread = spread_out(grad, self._places.on(grad.device), self.grid, self.stage.outputs)
        columns = self._columns(spread, self._around.on(grad.device), self.stage.outputs)
        return torch.bmm(columns, turned(weight, self.stage)).view(len(grad), grad.shape[1], -1)

    def weigh(self, grads: Tensor, xs: Tensor, out: Tensor) -> None:
        """Write ``grad^T columns``, layer after layer: the columns of one are nine times its samples."""
        for grad, x, result in zip(grads, xs, out, strict=True):
            columns = self._columns(x, self._seen.on(x.device), self.stage.inputs)
            _product_into(result, grad.view(len(x), -1, self.stage.outputs).transpose(1, 2), columns)

    def _columns(self, x: Tensor, index: Tensor, channels: int) -> Tensor:
        taps = self.grid.kernel**2
        pixels = x.reshape(x.shape[0] * x.shape[1], -1, channels)
        return pixels.index_select(1, index).view(x.shape[0], -1, taps * channels)


class Native:
    """Convolutions by torch's own kernels, member after member; the padding is one gather, which is not kept."""

    def __init__(self, stage: Stage) -> None:
        assert stage.grid is not None, "a convolution"
        self.stage, self.grid = stage, stage.grid
        self._padded = _Table(lambda: padded(self.grid))
        self._places = _Table(lambda: places(self.grid))

    def ahead(self, x: Tensor, weight: Tensor, out: Tensor) -> Tensor:
        """Return the convolution of the padded samples."""
        for sample, kernel, result in zip(x, weight, out, strict=True):
            seen = self._map(sample, self.stage.inputs)
            found = functional.conv2d(seen, self._kernel(kernel, self.stage.inputs), stride=self.grid.stride)
            result.view(len(sample), -1, self.stage.outputs).copy_(found.permute(0, 2, 3, 1).flatten(1, 2))
        return out

    def back(self, grad: Tensor, weight: Tensor) -> Tensor:
        """Return the convolution of the padded gradient with the kernel turned round."""
        spread = spread_out(grad, self._places.on(grad.device), self.grid, self.stage.outputs)
        kernels = turned(weight, self.stage).transpose(1, 2)
        return torch.stack(
            [
                functional.conv2d(self._map(one, self.stage.outputs), self._kernel(kernel, self.stage.outputs))
                .permute(0, 2, 3, 1)
                .flatten(1)
                for one, kernel in zip(spread, kernels, strict=True)
            ]
        )

    def weigh(self, grads: Tensor, xs: Tensor, out: Tensor) -> None:
        """Write the gradients that torch's own backward pass gives."""
        for grad, x, result in zip(grads.flatten(0, 1), xs.flatten(0, 1), out.flatten(0, 1), strict=True):
            seen, kernel = self._map(x, self.stage.inputs), self._kernel(result, self.stage.inputs).to(x.dtype)
            size = (len(grad), self.grid.out_height, self.grid.out_width, self.stage.outputs)
            given, stride = grad.view(size).permute(0, 3, 1, 2), [self.grid.stride] * 2
            none, wanted = [0, 0], [False, True, False]
            _, found, _ = torch.ops.aten.convolution_backward(
                given, seen, kernel, None, stride, none, [1, 1], False, none, 1, wanted
            )
            result.view(len(result), -1, self.stage.inputs).copy_(found.permute(0, 2, 3, 1).flatten(1, 2))

    def _map(self, sample: Tensor, channels: int) -> Tensor:
        """Return samples [batch, features] as padded maps in torch's shape, channels innermost in memory."""
        pad = self.grid.kernel // 2
        pixels = sample.reshape(len(sample), -1, channels).index_select(1, self._padded.on(sample.device))
        size = (len(sample), self.grid.height + 2 * pad, self.grid.width + 2 * pad, channels)
        return pixels.view(size).permute(0, 3, 1, 2)

    def _kernel(self, weight: Tensor, channels: int) -> Tensor:
        side = self.grid.kernel
        return weight.reshape(-1, side, side, channels).permute(0, 3, 1, 2)


PRODUCTS: dict[str, Callable[[Stage], Product]] = {"gather": Gathered, "native": Native}


def neighbours(grid: Grid) -> Tensor:
    """Return, for every output of a convolution and every tap, which position of the map it sees.

    Example:
        >>> neighbours(Grid(1, 4, 3, 2)).view(2, 3, 3)[:, 1].tolist()
        [[3, 0, 1], [1, 2, 3]]
    """
    pad, taps = grid.kernel // 2, torch.arange(grid.kernel)
    rows = (torch.arange(grid.out_height)[:, None] * grid.stride + taps - pad) % grid.height
    columns = (torch.arange(grid.out_width)[:, None] * grid.stride + taps - pad) % grid.width
    return (rows[:, None, :, None] * grid.width + columns[None, :, None, :]).flatten()


def padded(grid: Grid) -> Tensor:
    """Return which position of the map every position of the padded one holds."""
    pad = grid.kernel // 2
    rows = torch.arange(-pad, grid.height + pad) % grid.height
    columns = torch.arange(-pad, grid.width + pad) % grid.width
    return (rows[:, None] * grid.width + columns).flatten()


def places(grid: Grid) -> Tensor:
    """Return the position of the map at the centre of every output."""
    rows = torch.arange(grid.out_height) * grid.stride
    columns = torch.arange(grid.out_width) * grid.stride
    return (rows[:, None] * grid.width + columns).flatten()


def spread_out(grad: Tensor, centres: Tensor, grid: Grid, channels: int) -> Tensor:
    """Return the gradient of a strided convolution at the places where its outputs had their centres, else zero."""
    if grid.stride == 1:
        return grad
    whole = grad.new_zeros(*grad.shape[:2], grid.height * grid.width, channels)
    whole.index_copy_(2, centres, grad.view(*grad.shape[:2], -1, channels))
    return whole.flatten(2)


def turned(weight: Tensor, stage: Stage) -> Tensor:
    """Return kernels ``[members, out, taps * in]`` turned round, as ``[members, taps * out, in]``."""
    kernels = weight.view(len(weight), stage.outputs, -1, stage.inputs)
    return kernels.flip(2).transpose(1, 2).reshape(len(weight), -1, stage.inputs)


class _Table:
    """Indices that are made once for a device."""

    def __init__(self, make: Callable[[], Tensor]) -> None:
        self._make = make
        self._made: dict[torch.device, Tensor] = {}

    def on(self, device: torch.device) -> Tensor:
        if device not in self._made:
            self._made[device] = self._make().to(device)
        return self._made[device]


def _product_into(out: Tensor, one: Tensor, two: Tensor) -> None:
    """Write a batched product to `out`, which may be of another type (float32 masters of bfloat16 products)."""
    if out.dtype == one.dtype:
        torch.bmm(one, two, out=out)
    else:
        out.copy_(torch.bmm(one, two))
