"""Convolutions padded with zeros and batch normalisations, for all networks at once, in torch's own operations.

Samples are ``[networks, rows, channels]``, a row for each pixel of each image. A normalisation needs two sums over the
rows of a batch by channel, ``[networks, 2, channels]``. It computes ``scale * (z - mean) + shift``, and its backward
pass ``a * (grad - c) + b * (z - mean)``: `scale_shift`, ``[3, networks, channels]``, holds scale, shift and mean;
`coefficients`, ``[4, networks, channels]``, holds a, b, c and mean.

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


class PreviousLayer(NamedTuple):
    """The layer whose output `y` a convolution reads: `y` is the activation of the normalised `z`."""

    y: Tensor
    z: Tensor
    activation: str


class DeferredNorm(NamedTuple):
    """Samples that a convolution normalises, by `scale_shift`, and activates when it loads `z`."""

    z: Tensor
    scale_shift: Tensor


Samples = Tensor | DeferredNorm


class Maps:
    """The operations between feature maps.

    Args:
        dtype: of the operands of products.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self._weights: dict[NormSlab, Tensor] = {}

    def refresh(self, slab: NormSlab) -> None:
        """Take a copy of the weights of a slab; convolutions use it until the next call."""
        self._weights[slab] = slab.weight.value.to(self.dtype)

    def network_input(self, x: Tensor, slab: NormSlab) -> Tensor:
        """Return the samples that the first convolution, of this slab, reads."""
        del slab  # as they are
        return x

    def conv_input(self, slab: NormSlab, z: Tensor, scale_shift: Tensor, activation: str) -> Samples:
        """Return the normalised and activated `z` in the form that the convolutions of a slab read."""
        del slab  # the same for all
        return self.normalise(z, scale_shift, activation)

    def convolve(self, x: Samples, slab: NormSlab, layer: int, *, with_sums: bool) -> tuple[Tensor, Tensor | None]:
        """Return the convolution of the samples and, if `with_sums`, the sums of it and of its squares."""
        assert isinstance(x, Tensor), "see `conv_input`"
        networks = zip(x, self._weights[slab][layer], strict=True)
        z = torch.stack([convolved(samples, kernel, grid_of(slab)) for samples, kernel in networks])
        return z, self.sums(z, z) if with_sums else None

    def backward(
        self,
        slab: NormSlab,
        layer: int,
        grad: Tensor,
        z: Tensor,
        sums: Tensor,
        x: Samples,
        *,
        shortcut_grad: Tensor | None = None,
        previous_z: Tensor | None = None,
        activation: str = "linear",
    ) -> tuple[Tensor, Tensor | None]:
        """Compute the backward pass of a layer, a convolution of `x` and its normalisation.

        Args:
            grad, z: the gradient of the normalised convolution, and the convolution.
            sums: of `grad` and of its product with `z`.
            shortcut_grad: another gradient of `x`.
            previous_z: the input of the normalisation that gave `x`, together with `activation`. With it, the gradient
                before that activation is returned, and its sums; without it, the gradient of `x`, and None.
        """
        assert isinstance(x, Tensor), "see `conv_input`"
        z_grad = self.norm_backward(grad, z, self.norm_grads(slab, layer, sums, grad.shape[1]))
        self.weight_grad(slab, layer, z_grad, x)
        previous = None if previous_z is None else PreviousLayer(x, previous_z, activation)
        return self.convolve_backward(z_grad, slab, layer, shortcut_grad=shortcut_grad, previous=previous)

    def convolve_backward(
        self,
        grad: Tensor,
        slab: NormSlab,
        layer: int,
        *,
        shortcut_grad: Tensor | None = None,
        previous: PreviousLayer | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Return the gradient of the input of a convolution, plus `shortcut_grad`.

        With `previous`, it is the gradient before the activation of that layer, and comes with its sums; see
        `activation_backward`.
        """
        networks = zip(grad, self._weights[slab][layer], strict=True)
        x_grad = torch.stack([input_grad(one, kernel, grid_of(slab)) for one, kernel in networks])
        if shortcut_grad is not None:
            x_grad += shortcut_grad
        return (x_grad, None) if previous is None else self.activation_backward(x_grad, previous)

    def weight_grad(self, slab: NormSlab, layer: int, grad: Tensor, x: Tensor) -> None:
        """Compute the gradient of a layer's weights; `finish_weight_grads` completes it."""
        for index, (own_grad, samples) in enumerate(zip(grad, x, strict=True)):
            own = weight_grad(own_grad, samples, self._weights[slab][layer, index], grid_of(slab))
            slab.weight.gradient[layer, index].copy_(own)

    def finish_weight_grads(self, slab: NormSlab) -> None:
        """Complete the gradients of a slab, mask them, and compute their norms."""
        slab.mask_gradients()

    def sums(self, grad: Tensor, z: Tensor) -> Tensor:
        """Return the sums of a gradient and of its product with `z`, over the rows."""
        grad, z = grad.to(_exact(grad)), z.to(_exact(z))
        return torch.stack([grad.sum(1), (grad * z).sum(1)], dim=1)

    def scale_shift(self, slab: NormSlab, layer: int, sums: Tensor, rows: int) -> Tensor:
        """Return the scale, shift and mean for a batch with these sums; the slab keeps the statistics."""
        slab.samples = rows
        mean, square = sums[:, 0] / rows, sums[:, 1] / rows
        # Infinity stays infinite, as in torch: the difference to an infinite mean would be NaN.
        var = torch.where(square.isinf(), square, square - mean * mean)
        slab.batch_mean[layer], slab.batch_var[layer] = mean, var.clamp_(min=0)
        return _scale_shift(slab, layer, slab.batch_mean, slab.batch_var)

    def batch_scale_shift(self, slab: NormSlab, layer: int, rows: Tensor) -> Tensor:
        """Return the scale, shift and mean for a batch, by exact variances; the slab keeps the statistics."""
        slab.samples = rows.shape[1]
        var, mean = torch.var_mean(rows.to(_exact(rows)), dim=1, correction=0)
        slab.batch_mean[layer], slab.batch_var[layer] = mean, var
        return _scale_shift(slab, layer, slab.batch_mean, slab.batch_var)

    def running_scale_shift(self, slab: NormSlab, layer: int) -> Tensor:
        """Return the scale, shift and mean by the running statistics."""
        return _scale_shift(slab, layer, slab.mean, slab.var)

    def norm_grads(self, slab: NormSlab, layer: int, sums: Tensor, rows: int) -> Tensor:
        """Return the coefficients of a normalisation's backward pass; fill the gradients of its scale and shift."""
        mean, inv_std = slab.batch_mean[layer], torch.rsqrt(slab.batch_var[layer] + slab.norms.eps)
        scale_grad = (sums[:, 1] - mean * sums[:, 0]) * inv_std
        slab.scale.gradient[layer], slab.shift.gradient[layer] = scale_grad, sums[:, 0]
        a = slab.scale.value[layer] * inv_std
        b = -a * inv_std * scale_grad / rows
        return torch.stack([a, b, sums[:, 0] / rows, mean])

    def normalise(
        self,
        z: Tensor,
        scale_shift: Tensor,
        activation: str,
        shortcut: Tensor | None = None,
        shortcut_scale_shift: Tensor | None = None,
    ) -> Tensor:
        """Return the activation of the normalised `z` plus a shortcut, normalised by its own scale and shift if any."""
        out = _normalised(scale_shift, z)
        if shortcut is not None:
            out += shortcut if shortcut_scale_shift is None else _normalised(shortcut_scale_shift, shortcut)
        ACTIVATIONS[activation][0](out)
        return out.to(z.dtype)

    def activation_backward(self, grad: Tensor, previous: PreviousLayer) -> tuple[Tensor, Tensor]:
        """Return the gradient before an activation, and its sums for the normalisation before that."""
        out = torch.empty_like(grad)
        ACTIVATIONS[previous.activation][1](grad, previous.y, out)
        return out, self.sums(out, previous.z)

    def norm_backward(self, grad: Tensor, z: Tensor, coefficients: Tensor) -> Tensor:
        """Return the gradient of the input `z` of a normalisation, from the gradient of its output."""
        a, b, c, mean = coefficients.unsqueeze(2)
        z_grad: Tensor = a * (grad - c) + b * (z - mean)
        return z_grad.to(grad.dtype)


def grid_of(slab: NormSlab) -> Grid:
    """Return the grid of the convolutions of a slab."""
    assert slab.stage.grid is not None, "a convolution"
    return slab.stage.grid


def _scale_shift(slab: NormSlab, layer: int, mean: Tensor, var: Tensor) -> Tensor:
    """Return the scale, shift and mean by these statistics."""
    scale = slab.scale.value[layer] * torch.rsqrt(var[layer] + slab.norms.eps)
    return torch.stack([scale, slab.shift.value[layer], mean[layer]])


def _normalised(scale_shift: Tensor, z: Tensor) -> Tensor:
    scale, shift, mean = scale_shift.unsqueeze(2)
    return torch.addcmul(shift, z - mean, scale)


def _exact(tensor: Tensor) -> torch.dtype:
    """Return the dtype in which sums over a tensor are computed."""
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32
