"""A run of equal layers of stacked networks, forward and backward written out, in torch's own operations."""

from typing import Any

import torch
from torch import Tensor

from orthosparse.lab.training.ensemble.pointwise import bend_, unbend
from orthosparse.lab.training.ensemble.products import PRODUCTS, Matrices, Product
from orthosparse.lab.training.ensemble.slab import Slab
from orthosparse.lab.training.ensemble.ways import Ways

_CHUNK = 50  # layers whose gradients are in memory together

Cast = tuple[Tensor, Tensor]


class Run:
    """A run of equal layers: samples ``[members, batch, features]`` go through all of them.

    Only outputs are kept for the way back, or less. What is done to several layers at once (`advance`, `samples`,
    `chunk`) and what they keep may be otherwise in other runs.
    """

    def __init__(self, slab: Slab, dtype: torch.dtype, ways: Ways) -> None:
        self.slab, self.stage, self.dtype, self.recompute = slab, slab.stage, dtype, ways.recompute
        convolution = ways.convolution or ("native" if slab.weight.value.is_cuda else "gather")
        self.product: Product = Matrices(slab.stage) if slab.stage.grid is None else PRODUCTS[convolution](slab.stage)
        layers = len(slab.stage.names)
        self.chunks = [(start, min(start + _CHUNK, layers)) for start in range(0, layers, _CHUNK)]

    def through(self, x: Tensor) -> Tensor:
        """Return the outputs of the last layer, and keep nothing."""
        return self.advance(x, 0, len(self.stage.names), self.cast())

    def ahead(self, x: Tensor) -> tuple[Tensor, Any]:
        """Return the outputs of the last layer, and what the way back needs."""
        cast = self.cast()
        if not self.recompute:
            inputs, outputs = self.samples(x, 0, len(self.stage.names), cast)
            return self.last_of(outputs), (cast, inputs, outputs)
        starts = []
        for start, stop in self.chunks:
            starts.append(x)
            x = self.advance(x, start, stop, cast)
        return x, (cast, starts)

    def back(self, grad: Tensor, kept: Any, *, first: bool) -> Tensor | None:
        """Fill the gradients of the slab and their norms; return the gradient of the input unless this run is `first`.

        Gradients off the masks are zero.
        """
        cast, *samples = kept
        for place in reversed(range(len(self.chunks))):
            start, stop = self.chunks[place]
            if self.recompute:
                inputs, outputs = self.samples(samples[0].pop(), start, stop, cast)
            else:
                inputs, outputs = samples[0][start:stop], samples[1][start:stop]
            grad = self.chunk(grad, inputs, outputs, cast[0], start, last=first and place == 0)
        self.measure()
        return None if first else grad

    def last_of(self, outputs: Tensor) -> Tensor:
        """Return the outputs of the last layer, of what `samples` gave."""
        return outputs[-1]

    def advance(self, x: Tensor, start: int, stop: int, cast: Cast) -> Tensor:
        """Return the outputs of layer ``stop - 1`` for the inputs of layer `start`."""
        for layer in range(start, stop):
            x = self._layer(x, cast[0][layer], cast[1][layer], self.empty(x))
        return x

    def samples(self, x: Tensor, start: int, stop: int, cast: Cast) -> tuple[Tensor, Tensor]:
        """Return the inputs and the outputs of some layers, each in one tensor."""
        if stop - start == 1:
            y = self._layer(x, cast[0][start], cast[1][start], self.empty(x))
            return x.unsqueeze(0), y.unsqueeze(0)
        both = x.new_empty(stop - start + 1, *x.shape)
        both[0].copy_(x)
        for place in range(stop - start):
            self._layer(both[place], cast[0][start + place], cast[1][start + place], both[place + 1])
        return both[:-1], both[1:]

    def chunk(
        self, grad: Tensor, inputs: Tensor, outputs: Tensor, weights: Tensor, start: int, *, last: bool
    ) -> Tensor:
        """Go back through some layers, fill their gradients, and return that of their input (unless `last`)."""
        before = torch.empty_like(outputs)  # the gradients before the activations
        turned = self.product.turned(weights[start : start + len(outputs)])
        for place in reversed(range(len(outputs))):
            unbend(grad.view_as(outputs[place]), outputs[place], before[place], self.stage.activation)
            if place or not last:
                grad = self.product.back(before[place], turned[place])
        stop = start + len(outputs)
        self.product.weigh(before, inputs, self.slab.weight.gradient[start:stop])
        self.sum_up(before, start)
        return grad

    def sum_up(self, before: Tensor, start: int) -> None:
        """Fill the gradients of the biases of some layers."""
        rows = before.view(*before.shape[:2], -1, self.stage.outputs)
        self.slab.bias.gradient[start : start + len(before)] = rows.sum(2)

    def measure(self) -> None:
        """Set the gradients off the masks to zero, and take the norm of each layer's."""
        self.slab.measure()

    def empty(self, x: Tensor) -> Tensor:
        """Return room for the outputs of a layer."""
        return x.new_empty(*x.shape[:2], self.stage.features[1])

    def _layer(self, x: Tensor, weight: Tensor, bias: Tensor, out: Tensor) -> Tensor:
        self.product.ahead(x, weight, out)
        bend_(out.view(len(out), -1, self.stage.outputs), bias.unsqueeze(1), self.stage.activation)
        return out

    def cast(self) -> Cast:
        """Return weights and biases in the type of the products: all layers in one cast, or none."""
        return self.slab.weight.value.to(self.dtype), self.slab.bias.value.to(self.dtype)
