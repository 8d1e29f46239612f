"""Convolutions padded with zeros and batch normalisations, for all networks at once, in torch's own operations.

Samples are ``[networks, rows, channels]``, a row for every position of every image. What a normalisation needs to know
of a batch are two sums over its rows by channel, ``[networks, 2, channels]``. What it then does to a channel is
``scale * (z - mean) + shift``, of parts ``[3, networks, channels]``; and to a gradient in the backward pass
``a * (v - c) + b * (z - mean)``, of four coefficients.

Means are subtracted first, so that a constant channel becomes exactly its shift. Computed as ``scale * z + (shift -
scale * mean)`` it would be off by a rounding, and a ReLU at a shift of zero would pass gradients that it should stop;
the normalisation of a constant channel multiplies them by 1 / sqrt(eps).
"""

from typing import NamedTuple

import torch
from torch import Tensor

from orthosparse.lab.models.stages import Grid
from orthosparse.lab.training.stacked.operations import ACTIVATIONS, convolved, input_grad, weight_grad
from orthosparse.lab.training.stacked.slab import NormSlab


class Below(NamedTuple):
    """What the gradient of samples goes through next: the activation that gave `y`, and the normalisation of `z`."""

    y: Tensor
    z: Tensor
    activation: str


class Normed(NamedTuple):
    """Samples that a convolution normalises and activates as it reads them: `z` by `scale_shift`."""

    z: Tensor
    scale_shift: Tensor


Samples = Tensor | Normed


class Maps:
    """The operations between feature maps.

    Args:
        dtype: in which products are computed.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self._weights: dict[NormSlab, Tensor] = {}

    def refresh(self, slab: NormSlab) -> None:
        """Take the weights of a slab as they are now: convolutions are by them until the next call."""
        self._weights[slab] = slab.weight.value.to(self.dtype)

    def prepared(self, x: Tensor, slab: NormSlab) -> Tensor:
        """Return the samples that a network gets as its first convolution wants them."""
        del slab  # as they are
        return x

    def samples_for(self, slab: NormSlab, z: Tensor, scale_shift: Tensor, activation: str) -> Samples:
        """Return the normalised and activated `z` as the convolutions of a slab read it."""
        del slab  # for all the same
        return self.normalise(z, scale_shift, activation)

    def convolve(self, x: Samples, slab: NormSlab, layer: int, *, counted: bool) -> tuple[Tensor, Tensor | None]:
        """Return the convolution of the samples, and if `counted` the sums of it and of its squares."""
        assert isinstance(x, Tensor), "see `samples_for`"
        networks = zip(x, self._weights[slab][layer], strict=True)
        found = torch.stack([convolved(one, kernel, grid_of(slab)) for one, kernel in networks])
        return found, self.sums(found, found) if counted else None

    def backward(
        self,
        slab: NormSlab,
        layer: int,
        v: Tensor,
        z: Tensor,
        sums: Tensor,
        x: Samples,
        *,
        add: Tensor | None = None,
        below: Tensor | None = None,
        activation: str = "linear",
    ) -> tuple[Tensor, Tensor | None]:
        """Take a gradient back through a layer: its normalisation, and its convolution. Take note of all its gradients.

        Args:
            v, z: the gradient after the normalisation, and what was normalised, the convolution of `x`.
            sums: of `v` with `z`.
            add: another gradient of `x`.
            below: what was normalised, and activated by `activation`, to give `x`. With it the gradient is that before
                the activation, and comes with its sums; without it, it is that of `x`, and None.
        """
        assert isinstance(x, Tensor), "see `samples_for`"
        inner = self.norm_backward(v, z, self.norm_grads(slab, layer, sums, v.shape[1]))
        self.weight_grad(slab, layer, inner, x)
        after = None if below is None else Below(x, below, activation)
        return self.convolve_backward(inner, slab, layer, add=add, below=after)

    def convolve_backward(
        self, grad: Tensor, slab: NormSlab, layer: int, *, add: Tensor | None = None, below: Below | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Return the gradient of what a convolution saw, with `add`, and back through what comes before that.

        With `below` it is the gradient before the activation, and comes with its sums; see `activation_backward`.
        """
        networks = zip(grad, self._weights[slab][layer], strict=True)
        found = torch.stack([input_grad(one, kernel, grid_of(slab)) for one, kernel in networks])
        if add is not None:
            found += add
        return (found, None) if below is None else self.activation_backward(found, below)

    def weight_grad(self, slab: NormSlab, layer: int, grad: Tensor, x: Tensor) -> None:
        """Take note of the gradient of a layer's weights; `collect` finishes it."""
        for place, (one, seen) in enumerate(zip(grad, x, strict=True)):
            found = weight_grad(one, seen, self._weights[slab][layer, place], grid_of(slab))
            slab.weight.gradient[layer, place].copy_(found)

    def collect(self, slab: NormSlab) -> None:
        """Finish the gradients of a slab, and compute their norms."""
        slab.mask_gradients()

    def sums(self, v: Tensor, z: Tensor) -> Tensor:
        """Return the sums of `v` and of its product with `z`, over the rows."""
        v, z = v.to(_exact(v)), z.to(_exact(z))
        return torch.stack([v.sum(1), (v * z).sum(1)], dim=1)

    def scale_shift(self, slab: NormSlab, layer: int, sums: Tensor, rows: int) -> Tensor:
        """Return what a normalisation does to a batch of these sums; the slab keeps the statistics."""
        slab.samples = rows
        mean, square = sums[:, 0] / rows, sums[:, 1] / rows
        # What is infinite stays so, as torch has it: less a mean that is as large it would not be a number.
        var = torch.where(square.isinf(), square, square - mean * mean)
        slab.batch_mean[layer], slab.batch_var[layer] = mean, var.clamp_(min=0)
        return _scale_shift(slab, layer, slab.batch_mean, slab.batch_var)

    def batch_scale_shift(self, slab: NormSlab, layer: int, rows: Tensor) -> Tensor:
        """Return what a normalisation does to a batch, by exact variances; the slab keeps the statistics."""
        slab.samples = rows.shape[1]
        var, mean = torch.var_mean(rows.to(_exact(rows)), dim=1, correction=0)
        slab.batch_mean[layer], slab.batch_var[layer] = mean, var
        return _scale_shift(slab, layer, slab.batch_mean, slab.batch_var)

    def running_scale_shift(self, slab: NormSlab, layer: int) -> Tensor:
        """Return what a normalisation does by its running statistics."""
        return _scale_shift(slab, layer, slab.mean, slab.var)

    def norm_grads(self, slab: NormSlab, layer: int, sums: Tensor, rows: int) -> Tensor:
        """Return what a normalisation does to gradients of these sums; fill those of its scale and shift."""
        mean, near = slab.batch_mean[layer], torch.rsqrt(slab.batch_var[layer] + slab.norms.eps)
        scale_grad = (sums[:, 1] - mean * sums[:, 0]) * near
        slab.scale.gradient[layer], slab.shift.gradient[layer] = scale_grad, sums[:, 0]
        a = slab.scale.value[layer] * near
        b = -a * near * scale_grad / rows
        return torch.stack([a, b, sums[:, 0] / rows, mean])

    def normalise(
        self, z: Tensor, scale_shift: Tensor, activation: str, other: Tensor | None = None, by: Tensor | None = None
    ) -> Tensor:
        """Return the activation of the normalised `z`, plus `other`, which may want to be normalised too."""
        found = _scaled(scale_shift, z)
        if other is not None:
            found += other if by is None else _scaled(by, other)
        ACTIVATIONS[activation][0](found)
        return found.to(z.dtype)

    def activation_backward(self, grad: Tensor, below: Below) -> tuple[Tensor, Tensor]:
        """Return the gradient before an activation, and the sums of it for the normalisation before that."""
        v = torch.empty_like(grad)
        ACTIVATIONS[below.activation][1](grad, below.y, v)
        return v, self.sums(v, below.z)

    def norm_backward(self, v: Tensor, z: Tensor, coefficients: Tensor) -> Tensor:
        """Return the gradient before a normalisation, of that after it."""
        a, b, c, mean = coefficients.unsqueeze(2)
        found: Tensor = a * (v - c) + b * (z - mean)
        return found.to(v.dtype)


def grid_of(slab: NormSlab) -> Grid:
    """Return where the convolutions of a slab look."""
    assert slab.stage.grid is not None, "a convolution"
    return slab.stage.grid


def _scale_shift(slab: NormSlab, layer: int, mean: Tensor, var: Tensor) -> Tensor:
    """Return what a normalisation by these statistics does."""
    scale = slab.scale.value[layer] * torch.rsqrt(var[layer] + slab.norms.eps)
    return torch.stack([scale, slab.shift.value[layer], mean[layer]])


def _scaled(scale_shift: Tensor, z: Tensor) -> Tensor:
    scale, shift, mean = scale_shift.unsqueeze(2)
    return torch.addcmul(shift, z - mean, scale)


def _exact(tensor: Tensor) -> torch.dtype:
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32
