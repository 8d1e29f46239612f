"""Stacked sequential networks: runs of equal layers, normalised layers and pools, with explicit backward passes."""

from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from orthosparse.lab.models.stages import Pool
from orthosparse.lab.training.stacked.maps import Maps, PreviousLayer
from orthosparse.lab.training.stacked.operations import activate_, activation_backward, product_of
from orthosparse.lab.training.stacked.slab import NormSlab, Slab

Cast = tuple[Tensor, Tensor]  # weights and biases in the dtype of products


class Link(Protocol):
    """A part of a sequential network, for samples ``[networks, batch, features]``."""

    def infer(self, x: Tensor) -> Tensor:
        """Return the outputs in evaluation mode, and save nothing."""

    def forward(self, x: Tensor) -> tuple[Tensor, Any]:
        """Return the outputs in training mode, and what `backward` needs."""

    def backward(self, grad: Tensor, saved: Any, *, first: bool) -> Tensor | None:
        """Fill gradients and their norms, zero off the masks; return that of the input unless this link is `first`."""


class LayerRun:
    """A run of equal layers in torch's own operations.

    Only outputs are saved for `backward`. Subclasses compute several layers at once (`infer_layers`, `forward_layers`,
    `backward_layers`), and may save them in another layout.
    """

    chunk = 50  # layers whose gradients are in memory at once

    def __init__(self, slab: Slab, dtype: torch.dtype) -> None:
        self.slab, self.stage, self.dtype = slab, slab.stage, dtype
        self.product = product_of(slab.stage)
        layers = len(slab.stage.names)
        self.chunks = [(start, min(start + self.chunk, layers)) for start in range(0, layers, self.chunk)]

    def infer(self, x: Tensor) -> Tensor:
        """Return the outputs of the last layer, and save nothing."""
        return self.infer_layers(x, self.cast())

    def forward(self, x: Tensor) -> tuple[Tensor, Any]:
        """Return the outputs of the last layer, and what `backward` needs."""
        cast = self.cast()
        inputs, outputs = self.forward_layers(x, cast)
        return self.last_of(outputs), (cast, inputs, outputs)

    def backward(self, grad: Tensor, saved: Any, *, first: bool) -> Tensor | None:
        """Fill the gradients of the slab and their norms; return that of the input unless this run is `first`."""
        cast, inputs, outputs = saved
        for start, stop in reversed(self.chunks):
            input_grad = start > 0 or not first
            grad = self.backward_layers(
                grad, inputs[start:stop], outputs[start:stop], cast[0], start, input_grad=input_grad
            )
        self.mask_gradients()
        return None if first else grad

    def last_of(self, outputs: Tensor) -> Tensor:
        """Return the outputs of the last layer from those of `forward_layers`, in the layout of other links."""
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
        samples = x.new_empty(layers + 1, *x.shape)
        samples[0].copy_(x)
        for layer in range(layers):
            self._layer(samples[layer], cast[0][layer], cast[1][layer], samples[layer + 1])
        return samples[:-1], samples[1:]

    def backward_layers(
        self, grad: Tensor, inputs: Tensor, outputs: Tensor, weights: Tensor, start: int, *, input_grad: bool
    ) -> Tensor:
        """Fill the gradients of some layers, and return that of their input (if `input_grad`)."""
        z_grads = torch.empty_like(outputs)  # the gradients before the activations
        transposed = self.product.transposed(weights[start : start + len(outputs)])
        for layer in reversed(range(len(outputs))):
            activation_backward(grad.view_as(outputs[layer]), outputs[layer], z_grads[layer], self.stage.activation)
            if layer > 0 or input_grad:
                grad = self.product.backward(z_grads[layer], transposed[layer])
        self.product.weight_grad(z_grads, inputs, self.slab.weight.gradient[start : start + len(outputs)])
        self.bias_grad(z_grads, start)
        return grad

    def bias_grad(self, z_grads: Tensor, start: int) -> None:
        """Fill the gradients of the biases of some layers."""
        rows = z_grads.view(*z_grads.shape[:2], -1, self.stage.outputs)
        self.slab.bias.gradient[start : start + len(z_grads)] = rows.sum(2)

    def mask_gradients(self) -> None:
        """Set the gradients off the masks to zero, and compute the norms of all layers."""
        self.slab.mask_gradients()

    def new_output(self, x: Tensor) -> Tensor:
        """Return an uninitialized tensor for the outputs of a layer."""
        return x.new_empty(*x.shape[:2], self.stage.features[1])

    def _layer(self, x: Tensor, weight: Tensor, bias: Tensor, out: Tensor) -> Tensor:
        self.product.forward(x, weight, out)
        activate_(out.view(len(out), -1, self.stage.outputs), bias.unsqueeze(1), self.stage.activation)
        return out

    def cast(self) -> Cast:
        """Return weights and biases in the dtype of products: one cast for all layers, or none."""
        return self.slab.weight.value.to(self.dtype), self.slab.bias.value.to(self.dtype)


class NormedLayer:
    """A layer with a batch normalisation, before its activation or after it.

    Args:
        maps: the operations of normalisations.
    """

    def __init__(self, slab: NormSlab, dtype: torch.dtype, maps: Maps) -> None:
        norm_last = slab.stage.norm_last
        # After an activation, means may be far larger than standard deviations: sums of squares would cancel.
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

    def backward(self, grad: Tensor, saved: Any, *, first: bool) -> Tensor | None:
        """Fill the gradients of the slab and their norms; return that of the input unless this layer is `first`."""
        weight, x, z, y = saved
        rows = self._rows(z)
        norm_grad, sums = self.maps.activation_backward(self._rows(grad), PreviousLayer(y, rows, self._after))
        coefficients = self.maps.norm_grads(self.slab, 0, sums, rows.shape[1])
        z_grad = self.maps.norm_backward(norm_grad, rows, coefficients).view(z.shape)
        if self._before != "linear":
            product_grad = torch.empty_like(z_grad)
            activation_backward(z_grad, z, product_grad, self._before)
        else:
            product_grad = z_grad
        self.product.weight_grad(product_grad.unsqueeze(0), x.unsqueeze(0), self.slab.weight.gradient)
        if "bias" in self.slab.named:
            self.slab.bias.gradient[0] = self._rows(product_grad).sum(1)
        self.slab.mask_gradients()
        return None if first else self.product.backward(product_grad, self.product.transposed(weight.unsqueeze(0))[0])

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
        pooled = functional.max_pool2d(maps, side) if self.pool.largest else functional.avg_pool2d(maps, side)
        return pooled.permute(0, 2, 3, 1).reshape(*x.shape[:2], -1)

    def forward(self, x: Tensor) -> tuple[Tensor, Any]:
        """Return the pooled maps, and what `backward` needs."""
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            pooled = self.infer(x)
        return pooled.detach(), (x, pooled)

    def backward(self, grad: Tensor, saved: Any, *, first: bool) -> Tensor:
        """Return the gradient of the maps before the pool."""
        del first  # there are no weights
        x, pooled = saved
        x_grad: Tensor = torch.autograd.grad(pooled, x, grad.view_as(pooled))[0]
        return x_grad

    def _maps(self, x: Tensor) -> Tensor:
        """Return samples as maps in torch's shape, channels innermost in memory."""
        return x.view(-1, self.pool.height, self.pool.width, self.pool.channels).permute(0, 3, 1, 2)


class Chain:
    """Sequential networks of one shape."""

    def __init__(self, links: list[Link]) -> None:
        self.links = links

    def infer(self, x: Tensor) -> Tensor:
        """Return the logits for samples ``[networks, batch, features]``, and save nothing."""
        for link in self.links:
            x = link.infer(x)
        return x

    def forward(self, x: Tensor) -> tuple[Tensor, list[Any]]:
        """Return the logits, and what `backward` needs."""
        saved = []
        for link in self.links:
            x, of_link = link.forward(x)
            saved.append(of_link)
        return x, saved

    def backward(self, grad: Tensor, saved: list[Any]) -> None:
        """Fill the gradients of all slabs and their norms; `saved` is emptied on the way."""
        for index in reversed(range(len(self.links))):
            input_grad = self.links[index].backward(grad, saved.pop(), first=index == 0)
            if input_grad is not None:
                grad = input_grad
