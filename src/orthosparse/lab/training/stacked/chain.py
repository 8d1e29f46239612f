"""Stacked sequential networks: runs of equal layers, normalised layers and pools, forward and backward written out."""

from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from orthosparse.lab.models.stages import Pool
from orthosparse.lab.training.stacked.maps import Below, Maps
from orthosparse.lab.training.stacked.operations import activate_, activation_backward, product_of
from orthosparse.lab.training.stacked.slab import NormSlab, Slab

Cast = tuple[Tensor, Tensor]


class Link(Protocol):
    """A part of a sequential network: samples ``[networks, batch, features]`` go through it."""

    def infer(self, x: Tensor) -> Tensor:
        """Return the outputs as they are tested, and keep nothing."""

    def forward(self, x: Tensor) -> tuple[Tensor, Any]:
        """Return the outputs as they are trained, and what `backward` needs."""

    def backward(self, grad: Tensor, kept: Any, *, first: bool) -> Tensor | None:
        """Fill gradients and their norms, zero off the masks; return that of the input unless this link is `first`."""


class LayerRun:
    """A run of equal layers in torch's own operations.

    Only outputs are kept for `backward`. What is done to several layers at once (`infer_layers`, `forward_layers`,
    `backward_layers`) and what they keep may be otherwise in other runs.
    """

    chunk = 50  # layers whose gradients are in memory together

    def __init__(self, slab: Slab, dtype: torch.dtype) -> None:
        self.slab, self.stage, self.dtype = slab, slab.stage, dtype
        self.product = product_of(slab.stage)
        layers = len(slab.stage.names)
        self.chunks = [(start, min(start + self.chunk, layers)) for start in range(0, layers, self.chunk)]

    def infer(self, x: Tensor) -> Tensor:
        """Return the outputs of the last layer, and keep nothing."""
        return self.infer_layers(x, self.cast())

    def forward(self, x: Tensor) -> tuple[Tensor, Any]:
        """Return the outputs of the last layer, and what `backward` needs."""
        cast = self.cast()
        inputs, outputs = self.forward_layers(x, cast)
        return self.last_of(outputs), (cast, inputs, outputs)

    def backward(self, grad: Tensor, kept: Any, *, first: bool) -> Tensor | None:
        """Fill the gradients of the slab and their norms; return that of the input unless this run is `first`."""
        cast, inputs, outputs = kept
        for place in reversed(range(len(self.chunks))):
            start, stop = self.chunks[place]
            input_grad = place > 0 or not first
            grad = self.backward_layers(
                grad, inputs[start:stop], outputs[start:stop], cast[0], start, input_grad=input_grad
            )
        self.mask_gradients()
        return None if first else grad

    def last_of(self, outputs: Tensor) -> Tensor:
        """Return the outputs of the last layer, of what `forward_layers` gave."""
        return outputs[-1]

    def infer_layers(self, x: Tensor, cast: Cast) -> Tensor:
        """Return the outputs of the last layer."""
        for weight, bias in zip(*cast, strict=True):
            x = self._layer(x, weight, bias, self.new_output(x))
        return x

    def forward_layers(self, x: Tensor, cast: Cast) -> tuple[Tensor, Tensor]:
        """Return the inputs and the outputs of all layers, each in one tensor."""
        layers = len(self.stage.names)
        if layers == 1:
            return x.unsqueeze(0), self._layer(x, cast[0][0], cast[1][0], self.new_output(x)).unsqueeze(0)
        both = x.new_empty(layers + 1, *x.shape)
        both[0].copy_(x)
        for layer in range(layers):
            self._layer(both[layer], cast[0][layer], cast[1][layer], both[layer + 1])
        return both[:-1], both[1:]

    def backward_layers(
        self, grad: Tensor, inputs: Tensor, outputs: Tensor, weights: Tensor, start: int, *, input_grad: bool
    ) -> Tensor:
        """Go back through some layers, fill their gradients, and return that of their input (if `input_grad`)."""
        before = torch.empty_like(outputs)  # the gradients before the activations
        transposed = self.product.transposed(weights[start : start + len(outputs)])
        for place in reversed(range(len(outputs))):
            activation_backward(grad.view_as(outputs[place]), outputs[place], before[place], self.stage.activation)
            if place or input_grad:
                grad = self.product.backward(before[place], transposed[place])
        self.product.weight_grad(before, inputs, self.slab.weight.gradient[start : start + len(outputs)])
        self.bias_grad(before, start)
        return grad

    def bias_grad(self, before: Tensor, start: int) -> None:
        """Fill the gradients of the biases of some layers."""
        rows = before.view(*before.shape[:2], -1, self.stage.outputs)
        self.slab.bias.gradient[start : start + len(before)] = rows.sum(2)

    def mask_gradients(self) -> None:
        """Set the gradients off the masks to zero, and compute the norm of each layer's."""
        self.slab.mask_gradients()

    def new_output(self, x: Tensor) -> Tensor:
        """Return room for the outputs of a layer."""
        return x.new_empty(*x.shape[:2], self.stage.features[1])

    def _layer(self, x: Tensor, weight: Tensor, bias: Tensor, out: Tensor) -> Tensor:
        self.product.forward(x, weight, out)
        activate_(out.view(len(out), -1, self.stage.outputs), bias.unsqueeze(1), self.stage.activation)
        return out

    def cast(self) -> Cast:
        """Return weights and biases in the type of the products: all layers in one cast, or none."""
        return self.slab.weight.value.to(self.dtype), self.slab.bias.value.to(self.dtype)


class NormedLayer:
    """A layer with a batch normalisation, before its activation or after it.

    Args:
        maps: the operations of normalisations.
    """

    def __init__(self, slab: NormSlab, dtype: torch.dtype, maps: Maps) -> None:
        norm_last = slab.stage.norm_last
        # After an activation means may be far larger than deviations: sums of squares would cancel.
        self.maps = Maps(dtype) if norm_last else maps
        self.slab, self.stage, self.dtype = slab, slab.stage, dtype
        self.product = product_of(slab.stage)
        self._before = slab.stage.activation if norm_last else "linear"
        self._after = "linear" if norm_last else slab.stage.activation

    def infer(self, x: Tensor) -> Tensor:
        """Return the outputs by the running statistics."""
        z = self._product(x, self.slab.weight.value[0].to(self.dtype))
        scale_shift = self.maps.running_scale_shift(self.slab, 0)
        return self.maps.normalise(self._rows(z), scale_shift, self._after).view(z.shape)

    def forward(self, x: Tensor) -> tuple[Tensor, Any]:
        """Return the outputs by the statistics of the batch, and what `backward` needs."""
        weight = self.slab.weight.value[0].to(self.dtype)
        z = self._product(x, weight)
        rows = self._rows(z)
        if rows.shape[1] < 2:  # as torch
            raise ValueError("batch: expected more than one value a channel to train on; got a single one")
        scale_shift = self.maps.batch_scale_shift(self.slab, 0, rows)
        y = self.maps.normalise(rows, scale_shift, self._after)
        return y.view(z.shape), (weight, x, z, y)

    def backward(self, grad: Tensor, kept: Any, *, first: bool) -> Tensor | None:
        """Fill the gradients of the slab and their norms; return that of the input unless this layer is `first`."""
        weight, x, z, y = kept
        rows = self._rows(z)
        v, sums = self.maps.activation_backward(self._rows(grad), Below(y, rows, self._after))
        coefficients = self.maps.norm_grads(self.slab, 0, sums, rows.shape[1])
        inner = self.maps.norm_backward(v, rows, coefficients).view(z.shape)
        if self._before != "linear":
            before = torch.empty_like(inner)
            activation_backward(inner, z, before, self._before)
            inner = before
        self.product.weight_grad(inner.unsqueeze(0), x.unsqueeze(0), self.slab.weight.gradient)
        if "bias" in self.slab.named:
            self.slab.bias.gradient[0] = self._rows(inner).sum(1)
        self.slab.mask_gradients()
        return None if first else self.product.backward(inner, self.product.transposed(weight.unsqueeze(0))[0])

    def _product(self, x: Tensor, weight: Tensor) -> Tensor:
        out = x.new_empty(*x.shape[:2], self.stage.features[1])
        self.product.forward(x, weight, out)
        bias = self.slab.bias.value[0].to(self.dtype)
        activate_(self._rows(out), bias.unsqueeze(1), self._before)
        return out

    def _rows(self, x: Tensor) -> Tensor:
        return x.reshape(len(x), -1, self.stage.outputs)


class Pooling:
    """Means or maxima over squares of a map."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool

    def infer(self, x: Tensor) -> Tensor:
        """Return the pooled maps."""
        maps, side = self._maps(x), self.pool.side
        found = functional.max_pool2d(maps, side) if self.pool.largest else functional.avg_pool2d(maps, side)
        return found.permute(0, 2, 3, 1).reshape(*x.shape[:2], -1)

    def forward(self, x: Tensor) -> tuple[Tensor, Any]:
        """Return the pooled maps, and what was pooled."""
        with torch.enable_grad():
            given = x.detach().requires_grad_()
            pooled = self.infer(given)
        return pooled.detach(), (given, pooled)

    def backward(self, grad: Tensor, kept: Any, *, first: bool) -> Tensor:
        """Return the gradient of what was pooled."""
        del first  # there are no weights
        given, pooled = kept
        found: Tensor = torch.autograd.grad(pooled, given, grad.view_as(pooled))[0]
        return found

    def _maps(self, x: Tensor) -> Tensor:
        """Return samples as maps in torch's shape, channels innermost in memory."""
        return x.view(-1, self.pool.height, self.pool.width, self.pool.channels).permute(0, 3, 1, 2)


class Chain:
    """Networks of one shape, one part of all of them after the other."""

    def __init__(self, links: list[Link]) -> None:
        self.links = links

    def infer(self, x: Tensor) -> Tensor:
        """Return the logits for samples ``[networks, batch, features]``, and keep nothing."""
        for link in self.links:
            x = link.infer(x)
        return x

    def forward(self, x: Tensor) -> tuple[Tensor, list[Any]]:
        """Return the logits, and what `backward` needs."""
        kept = []
        for link in self.links:
            x, own = link.forward(x)
            kept.append(own)
        return x, kept

    def backward(self, grad: Tensor, kept: list[Any]) -> None:
        """Fill the gradients of all slabs and their norms; `kept` is emptied on the way."""
        for place in reversed(range(len(self.links))):
            found = self.links[place].backward(grad, kept.pop(), first=place == 0)
            if found is not None:
                grad = found
