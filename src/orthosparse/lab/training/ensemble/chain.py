"""Forward and backward through the stages of stacked networks, written out: only outputs are kept, or less."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from orthosparse.lab.training.ensemble.pointwise import bend_, compiled, unbend
from orthosparse.lab.training.ensemble.products import PRODUCTS, Matrices, Product
from orthosparse.lab.training.ensemble.slab import Slab
from orthosparse.lab.training.ensemble.stages import Pool, Stage
from orthosparse.registry import lookup

_CHUNK = 50  # layers whose gradients are in memory together


@dataclass(frozen=True)
class Ways:
    """How the same numbers are computed.

    Attributes:
        convolution: ``gather``, one batched product, or ``native``, torch's own kernels one member after the other.
        recompute: keep the samples at every 50th layer alone, and compute those between them again when going back.
        compiled: let torch's compiler join bias and activation, and the parts of the update.
    """

    convolution: str = "gather"
    recompute: bool = False
    compiled: bool = False

    def __post_init__(self) -> None:
        lookup(PRODUCTS, self.convolution, "convolution")

    def of(self, function: Callable[..., None]) -> Callable[..., None]:
        """Return a pointwise function, as it is or compiled."""
        return compiled(function) if self.compiled else function


class Chain:
    """Networks of one shape, one layer of all members after the other.

    Args:
        dtype: in which products are computed; the slabs keep their own.
    """

    def __init__(self, stages: list[Stage | Pool], slabs: list[Slab], dtype: torch.dtype, ways: Ways) -> None:
        self.dtype, self.stages = dtype, stages
        held = iter(slabs)
        self.links: list[_Run | _Pooling] = [
            _Pooling(stage) if isinstance(stage, Pool) else _Run(next(held), dtype, ways) for stage in stages
        ]

    def logits(self, x: Tensor) -> Tensor:
        """Return the outputs for samples ``[members, batch, features]``, and keep nothing."""
        for link in self.links:
            x = link.through(x)
        return x

    def ahead(self, x: Tensor) -> tuple[Tensor, list[Any]]:
        """Return the outputs, and what the way back needs."""
        kept = []
        for link in self.links:
            x, own = link.ahead(x)
            kept.append(own)
        return x, kept

    def back(self, grad: Tensor, kept: list[Any]) -> None:
        """Fill the gradients of all slabs; `kept` is emptied on the way."""
        for place in reversed(range(len(self.links))):
            found = self.links[place].back(grad, kept.pop(), first=place == 0)
            if found is not None:
                grad = found


class _Run:
    """A run of equal layers."""

    def __init__(self, slab: Slab, dtype: torch.dtype, ways: Ways) -> None:
        self.slab, self.stage, self.dtype, self.recompute = slab, slab.stage, dtype, ways.recompute
        self.product: Product = (
            Matrices(slab.stage) if slab.stage.grid is None else PRODUCTS[ways.convolution](slab.stage)
        )
        self._bend, self._unbend = ways.of(bend_), ways.of(unbend)
        layers = len(slab.stage.names)
        self.chunks = [(start, min(start + _CHUNK, layers)) for start in range(0, layers, _CHUNK)]

    def through(self, x: Tensor) -> Tensor:
        weights, biases = self._cast()
        for weight, bias in zip(weights, biases, strict=True):
            x = self._layer(x, weight, bias, self._empty(x))
        return x

    def ahead(self, x: Tensor) -> tuple[Tensor, Any]:
        cast = self._cast()
        if not self.recompute:
            inputs, outputs = self._samples(x, 0, len(self.stage.names), cast)
            return outputs[-1], (cast, inputs, outputs)
        starts = []
        for start, stop in self.chunks:
            starts.append(x)
            for layer in range(start, stop):
                x = self._layer(x, cast[0][layer], cast[1][layer], self._empty(x))
        return x, (cast, starts)

    def back(self, grad: Tensor, kept: Any, *, first: bool) -> Tensor | None:
        cast, *samples = kept
        for place in reversed(range(len(self.chunks))):
            start, stop = self.chunks[place]
            if self.recompute:
                inputs, outputs = self._samples(samples[0].pop(), start, stop, cast)
            else:
                inputs, outputs = samples[0][start:stop], samples[1][start:stop]
            grad = self._chunk(grad, inputs, outputs, cast[0], start, last=first and place == 0)
        return None if first else grad

    def _chunk(
        self, grad: Tensor, inputs: Tensor, outputs: Tensor, weights: Tensor, start: int, *, last: bool
    ) -> Tensor:
        """Go back through some layers, fill their gradients, and return that of their input (unless `last`)."""
        before = torch.empty_like(outputs)  # the gradients before the activations
        turned = self.product.turned(weights[start : start + len(outputs)])
        for place in reversed(range(len(outputs))):
            flat = (tensor.reshape(-1) for tensor in (grad, outputs[place], before[place]))
            self._unbend(*flat, self.stage.activation)
            if place or not last:
                grad = self.product.back(before[place], turned[place])
        stop = start + len(outputs)
        self.product.weigh(before, inputs, self.slab.weight.gradient[start:stop])
        rows = before.view(*before.shape[:2], -1, self.stage.outputs)
        self.slab.bias.gradient[start:stop] = rows.sum(2)
        return grad

    def _samples(self, x: Tensor, start: int, stop: int, cast: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Return the inputs and the outputs of some layers, each in one tensor."""
        if stop - start == 1:
            y = self._layer(x, cast[0][start], cast[1][start], self._empty(x))
            return x.unsqueeze(0), y.unsqueeze(0)
        both = x.new_empty(stop - start + 1, *x.shape)
        both[0].copy_(x)
        for place in range(stop - start):
            self._layer(both[place], cast[0][start + place], cast[1][start + place], both[place + 1])
        return both[:-1], both[1:]

    def _layer(self, x: Tensor, weight: Tensor, bias: Tensor, out: Tensor) -> Tensor:
        self.product.ahead(x, weight, out)
        self._bend(out.view(len(out), -1, self.stage.outputs), bias.unsqueeze(1), self.stage.activation)
        return out

    def _empty(self, x: Tensor) -> Tensor:
        return x.new_empty(*x.shape[:2], self.stage.features[1])

    def _cast(self) -> tuple[Tensor, Tensor]:
        """Return weights and biases in the type of the products: all layers in one cast, or none."""
        return self.slab.weight.value.to(self.dtype), self.slab.bias.value.to(self.dtype)


class _Pooling:
    """Means over squares of a map."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.rows, self.columns = pool.height // pool.side, pool.width // pool.side

    def through(self, x: Tensor) -> Tensor:
        side, rows, columns = self.pool.side, self.rows, self.columns
        maps = x.view(*x.shape[:2], self.pool.height, self.pool.width, -1)[:, :, : rows * side, : columns * side]
        return maps.reshape(*x.shape[:2], rows, side, columns, side, -1).mean((3, 5)).flatten(2)

    def ahead(self, x: Tensor) -> tuple[Tensor, None]:
        return self.through(x), None

    def back(self, grad: Tensor, kept: None, *, first: bool) -> Tensor:
        del kept, first  # a mean is linear
        pool, side = self.pool, self.pool.side
        maps = grad.view(*grad.shape[:2], self.rows, 1, self.columns, 1, pool.channels) / side**2
        spread = maps.expand(-1, -1, -1, side, -1, side, -1)
        whole = grad.new_zeros(*grad.shape[:2], pool.height, pool.width, pool.channels)
        inner = whole[:, :, : self.rows * side, : self.columns * side]
        inner.copy_(spread.reshape(inner.shape))
        return whole.flatten(2)
