"""Products of stacked layers: samples with weights, and both gradients, for all members of an ensemble at once.

A member of `PRODUCTS` is made for a stage; `Product` says what it can do. Samples are ``[members, batch, features]``,
weights ``[members, out, taps * in]``; gradients of weights are taken for several layers together, ``[layers, members,
...]``.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from orthosparse.lab.training.ensemble.stages import Grid, Stage


class Product(Protocol):
    """What a stage does between its activations."""

    def ahead(self, x: Tensor, weight: Tensor, out: Tensor) -> None:
        """Write the product of the samples with the weights to `out`."""

    def turned(self, weights: Tensor) -> Tensor:
        """Return the weights of several layers as `back` takes them, one layer after the other."""

    def back(self, grad: Tensor, turned: Tensor) -> Tensor:
        """Return the gradient of the samples."""

    def weigh(self, grads: Tensor, xs: Tensor, out: Tensor) -> None:
        """Write the gradients of the weights of several layers to `out`."""


class Matrices:
    """Linear layers: one batched product."""

    def __init__(self, stage: Stage) -> None:
        del stage  # the shapes of the tensors say it all

    def ahead(self, x: Tensor, weight: Tensor, out: Tensor) -> None:
        """Write ``x W^T``."""
        torch.bmm(x, weight.transpose(1, 2), out=out)

    def turned(self, weights: Tensor) -> Tensor:
        """Return the weights as they are."""
        return weights

    def back(self, grad: Tensor, turned: Tensor) -> Tensor:
        """Return ``grad W``."""
        return torch.bmm(grad, turned)

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
        positions = self.grid.height * self.grid.width
        self._seen = _Gather(neighbours(self.grid), positions)
        self._around = _Gather(neighbours(replace(self.grid, stride=1)), positions)

    def ahead(self, x: Tensor, weight: Tensor, out: Tensor) -> None:
        """Write the product of the gathered samples with the weights."""
        columns = self._columns(self._seen, x, self.stage.inputs)
        torch.bmm(columns, weight.transpose(1, 2), out=out.view(len(x), -1, self.stage.outputs))

    def turned(self, weights: Tensor) -> Tensor:
        """Return the kernels turned round, ``[layers, members, taps * out, in]``."""
        return turned(weights, self.stage)

    def back(self, grad: Tensor, turned: Tensor) -> Tensor:
        """Return the convolution of the gradient, spread out over the stride, with the kernel turned round."""
        spread = spread_out(grad, self.grid, self.stage.outputs)
        columns = self._columns(self._around, spread, self.stage.outputs)
        return torch.bmm(columns, turned).view(len(grad), grad.shape[1], -1)

    def weigh(self, grads: Tensor, xs: Tensor, out: Tensor) -> None:
        """Write ``grad^T columns``, layer after layer: the columns of one are nine times its samples."""
        for grad, x, result in zip(grads, xs, out, strict=True):
            columns = self._columns(self._seen, x, self.stage.inputs)
            _product_into(result, grad.view(len(x), -1, self.stage.outputs).transpose(1, 2), columns)

    def _columns(self, gather: "_Gather", x: Tensor, channels: int) -> Tensor:
        return gather(x.flatten(0, 1), channels).view(len(x), -1, self.grid.kernel**2 * channels)


class Native:
    """Convolutions by torch's own kernels, member after member; the padding is one gather, which is not kept."""

    def __init__(self, stage: Stage) -> None:
        assert stage.grid is not None, "a convolution"
        self.stage, self.grid = stage, stage.grid
        self._padded = _Gather(padded(self.grid), self.grid.height * self.grid.width)

    def ahead(self, x: Tensor, weight: Tensor, out: Tensor) -> None:
        """Write the convolution of the padded samples."""
        for sample, kernel, result in zip(x, weight, out, strict=True):
            seen = self._map(sample, self.stage.inputs)
            found = functional.conv2d(seen, self._kernel(kernel, self.stage.inputs), stride=self.grid.stride)
            result.view(len(sample), -1, self.stage.outputs).copy_(found.permute(0, 2, 3, 1).flatten(1, 2))

    def turned(self, weights: Tensor) -> Tensor:
        """Return the kernels turned round, ``[layers, members, in, taps * out]``."""
        return turned(weights, self.stage).transpose(2, 3).contiguous()

    def back(self, grad: Tensor, turned: Tensor) -> Tensor:
        """Return the convolution of the padded gradient with the kernel turned round."""
        spread, channels = spread_out(grad, self.grid, self.stage.outputs), self.stage.outputs
        maps = [
            functional.conv2d(self._map(one, channels), self._kernel(kernel, channels))
            for one, kernel in zip(spread, turned, strict=True)
        ]
        return torch.stack([found.permute(0, 2, 3, 1).flatten(1) for found in maps])

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
        edge = self.grid.kernel - 1
        size = (len(sample), self.grid.height + edge, self.grid.width + edge, channels)
        return self._padded(sample, channels).view(size).permute(0, 3, 1, 2)

    def _kernel(self, weight: Tensor, channels: int) -> Tensor:
        side = self.grid.kernel
        return weight.view(-1, side, side, channels).permute(0, 3, 1, 2)


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


def spread_out(grad: Tensor, grid: Grid, channels: int) -> Tensor:
    """Return the gradient of a strided convolution at the places where its outputs had their centres, else zero."""
    if grid.stride == 1:
        return grad
    whole = grad.new_zeros(*grad.shape[:2], grid.height, grid.width, channels)
    seen = whole[:, :, :: grid.stride, :: grid.stride]
    seen.copy_(grad.view(seen.shape))
    return whole.flatten(2)


def turned(weights: Tensor, stage: Stage) -> Tensor:
    """Return kernels ``[..., out, taps * in]`` turned round, as ``[..., taps * out, in]``."""
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
