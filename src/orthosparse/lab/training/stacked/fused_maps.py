"""The operations between feature maps by our own GPU kernels: fewer launches and fewer trips to memory than torch's."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from orthosparse.lab.models.stages import Grid, Stage
from orthosparse.lab.training.stacked import cuda_launches, map_launches
from orthosparse.lab.training.stacked.cuda_launches import Convolutions
from orthosparse.lab.training.stacked.fused import chosen
from orthosparse.lab.training.stacked.map_launches import plan_backward, plan_forward, plan_weight_grad
from orthosparse.lab.training.stacked.maps import Below, Maps, Normed, Samples, grid_of
from orthosparse.lab.training.stacked.operations import spread_out
from orthosparse.lab.training.stacked.slab import NormSlab
from orthosparse.lab.training.stacked.tiles import Tiling, spread_kernels

_WIDTHS = (16, 32, 64)
_NORM_WIDTHS = (16, 32, 64, 128, 256, 512)
_LEAST = 4  # channels that are read in one piece


def maps_of(
    stages: Sequence[Stage], activation: str, dtype: torch.dtype, device: torch.device, fused: bool | None
) -> Maps:
    """Return the operations between feature maps by our kernels, where they fit and are wanted; else torch's own."""
    if not chosen(fused, device) or not fits(stages, dtype):
        return Maps(dtype)
    in_cuda = dtype == torch.bfloat16 and device.type == "cuda"
    return FusedMaps(dtype, _by_cuda(stages, activation, device) if in_cuda else {})


def _by_cuda(stages: Sequence[Stage], activation: str, device: torch.device) -> dict[int, Convolutions]:
    """Return the kernels in CUDA that there are for these stages and have room on the device, by channels."""
    kernels = cuda_launches.library(device, activation)
    if kernels is None:
        return {}
    number = torch.cuda.current_device() if device.index is None else device.index
    processors = torch.cuda.get_device_properties(device).multi_processor_count
    fitting = {stage.inputs for stage in stages if cuda_launches.fits(stage)}
    made = {channels: Convolutions(kernels, channels, number, processors) for channels in fitting}
    return {channels: each for channels, each in made.items() if each.fit}


def norms_of(channels: Sequence[int], dtype: torch.dtype, device: torch.device, fused: bool | None) -> Maps:
    """Return the operations of normalisations alone, of layers that give so many channels, in the same way."""
    fitting = all(width in _NORM_WIDTHS for width in channels) and dtype in (torch.float32, torch.bfloat16)
    return FusedMaps(dtype) if chosen(fused, device) and fitting else Maps(dtype)


def fits(stages: Sequence[Stage], dtype: torch.dtype) -> bool:
    """Return whether our kernels compute such networks, of which the first stage is the stem."""
    stem, *inner = stages
    widths = all(stage.inputs in _WIDTHS for stage in inner) and all(stage.outputs in _WIDTHS for stage in stages)
    return widths and stem.inputs <= _LEAST and dtype in (torch.float32, torch.bfloat16)


class FusedMaps(Maps):
    """The operations of a residual network, one launch each; sums are ``[members, tiles, 2, channels]`` here.

    Args:
        by_cuda: kernels in CUDA for the convolutions that fit them (`cuda_launches.fits`), by channels. Triton has all
            the others.
    """

    def __init__(self, dtype: torch.dtype, by_cuda: Mapping[int, Convolutions] = MappingProxyType({})) -> None:
        super().__init__(dtype)
        self._by_cuda = by_cuda
        # Kept: a captured graph goes on with those that it saw, also when a shorter batch has needed others.
        self._forward: dict[NormSlab, Tensor] = {}
        self._backward: dict[NormSlab, Tensor] = {}
        self._products: dict[tuple[NormSlab, tuple[int, ...]], Tensor] = {}
        self._last: dict[NormSlab, Tensor] = {}

    def refresh(self, slab: NormSlab) -> None:
        """Lay the kernels of a slab out for patches, for the forward and the backward pass."""
        if self._own(slab) is not None:
            super().refresh(slab)
            return
        grid, stage, value = grid_of(slab), slab.stage, slab.weight.value
        kernels = value.view(*value.shape[:3], grid.kernel, grid.kernel, stage.inputs)
        kernels = functional.pad(kernels, (0, _missing(slab)))
        self._spread(self._forward, slab, kernels, plan_forward(grid, stage.outputs)[0], grid.stride)
        if not _missing(slab):  # nothing goes back to the images
            around, transposed = _backward_grid(grid), kernels.flip(3, 4).transpose(2, 5)
            self._spread(self._backward, slab, transposed, plan_backward(around, stage.inputs)[0], -around.stride)

    def _spread(
        self, laid: dict[NormSlab, Tensor], slab: NormSlab, kernels: Tensor, tiling: Tiling, stride: int
    ) -> None:
        if slab not in laid:
            layers, members, outputs, _, _, inputs = kernels.shape
            shape = (layers, members, math.prod(tiling.window) * inputs, math.prod(tiling.patch) * outputs)
            laid[slab] = kernels.new_zeros(shape, dtype=self.dtype)
        spread_kernels(kernels, tiling, stride, laid[slab])

    def prepared(self, x: Tensor, slab: NormSlab) -> Tensor:
        """Return the samples with channels of zeros added to those that a network gets."""
        return functional.pad(x, (0, _missing(slab)))

    def samples_for(self, slab: NormSlab, z: Tensor, scale_shift: Tensor, activation: str) -> Samples:
        """Return what the convolutions of a slab read: kernels in CUDA normalise and activate it themselves."""
        if self._own(slab) is not None:
            return Normed(z, scale_shift)  # the kernels are built for the activation
        return super().samples_for(slab, z, scale_shift, activation)

    def convolve(self, x: Samples, slab: NormSlab, layer: int, *, counted: bool) -> tuple[Tensor, Tensor | None]:
        """Return the convolution of the samples, and if `counted` the sums of it and of its squares."""
        if (own := self._own(slab)) is not None:
            return own.convolve(x, self._weights[slab][layer], with_sums=counted)
        assert isinstance(x, Tensor), "see `samples_for`"
        width, shared = slab.stage.outputs, plan_forward(grid_of(slab), slab.stage.outputs)
        return map_launches.convolve(x, self._forward[slab][layer], shared, width, counted=counted)

    def backward(
        self, slab: NormSlab, layer: int, v: Tensor, z: Tensor, sums: Tensor, x: Samples, **what: Any
    ) -> tuple[Tensor, Tensor | None]:
        """Take a gradient back through a layer, in one launch where a kernel in CUDA fits; see `Maps`."""
        if (own := self._own(slab)) is None:
            return super().backward(slab, layer, v, z, sums, x, **what)
        coefficients = self.norm_grads(slab, layer, sums, v.shape[1])
        products = self._room_for(slab, own.weight_grads_shape(v))[layer]
        del what["activation"]  # as in `samples_for`
        renamed = {"shortcut_grad": what.get("add"), "previous_z": what["below"], "weight_grads": products}
        return own.convolve_backward(v, z, coefficients, x, self._weights[slab][layer], **renamed)

    def convolve_backward(
        self, grad: Tensor, slab: NormSlab, layer: int, *, add: Tensor | None = None, below: Below | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Return the gradient of what a convolution saw; see `Maps`."""
        grid, width = grid_of(slab), slab.stage.inputs
        if (around := _backward_grid(grid)) != grid:
            images = grad.shape[1] // (grid.out_height * grid.out_width)
            spread = spread_out(grad.view(len(grad), images, -1), grid, grad.shape[2])
            grad = spread.view(len(grad), -1, grad.shape[2])
        shared, kernel = plan_backward(around, width), self._backward[slab][layer]
        return map_launches.convolve_backward(grad, kernel, shared, width, add, below)

    def weight_grad(self, slab: NormSlab, layer: int, grad: Tensor, x: Tensor) -> None:
        """Write the product of every share of the patches with what they saw."""
        shared = plan_weight_grad(grid_of(slab), slab.stage.outputs)
        products = self._room_for(slab, map_launches.products_shape(grad, x, shared))
        map_launches.weight_grad(grad, x, products[layer], shared)

    def _room_for(self, slab: NormSlab, shape: tuple[int, ...]) -> Tensor:
        """Return where products of this shape are written for every layer of a slab."""
        if (slab, shape) not in self._products:
            made = torch.empty(len(slab.stage.names), *shape, dtype=torch.float32, device=slab.weight.value.device)
            self._products[slab, shape] = made
        self._last[slab] = self._products[slab, shape]
        return self._last[slab]

    def _own(self, slab: NormSlab) -> Convolutions | None:
        """Return the kernel in CUDA for the convolutions of a slab, where there is one."""
        return self._by_cuda.get(slab.stage.inputs) if cuda_launches.fits(slab.stage) else None

    def collect(self, slab: NormSlab) -> None:
        """Add up the shares, and what the outputs of a patch give to each weight; compute norms."""
        if self._own(slab) is not None:
            torch.sum(self._last[slab], 2, out=slab.weight.gradient)
            slab.mask_gradients()
            return
        grid, stage, products = grid_of(slab), slab.stage, self._last[slab].sum(2)
        tiling, side = plan_weight_grad(grid, stage.outputs)[0], grid.kernel
        shape = (*products.shape[:2], *tiling.patch, stage.outputs, *tiling.window, -1)
        products = products.view(shape)[..., : stage.inputs]
        found = slab.weight.gradient.view(*products.shape[:2], stage.outputs, side, side, stage.inputs)
        for place, (line, column) in enumerate(product(*map(range, tiling.patch))):
            top, left = line * grid.stride, column * grid.stride
            seen = products[:, :, line, column, :, top : top + side, left : left + side]
            found.copy_(seen) if place == 0 else found.add_(seen)
        slab.mask_gradients()

    def sums(self, v: Tensor, z: Tensor) -> Tensor:
        """Return the sums of `v` and of its product with `z`, tile by tile."""
        return map_launches.activation_backward(v, Below(v, z, "linear"), None)

    def scale_shift(self, slab: NormSlab, layer: int, sums: Tensor, rows: int) -> Tensor:
        """Return what a normalisation does to a batch of these sums; the slab keeps the statistics."""
        slab.samples = rows
        return map_launches.scale_shift(slab, layer, sums, rows)

    def batch_scale_shift(self, slab: NormSlab, layer: int, rows: Tensor) -> Tensor:
        """Return what a normalisation does to a batch; the slab keeps the statistics."""
        return self.scale_shift(slab, layer, self.sums(rows, rows), rows.shape[1])

    norm_grads = staticmethod(map_launches.norm_grads)
    normalise = staticmethod(map_launches.normalise)
    norm_backward = staticmethod(map_launches.norm_backward)

    def activation_backward(self, grad: Tensor, below: Below) -> tuple[Tensor, Tensor]:
        """Return the gradient before an activation, and the sums of it for the normalisation before that."""
        out = torch.empty_like(grad)
        return out, map_launches.activation_backward(grad, below, out)


def _backward_grid(grid: Grid) -> Grid:
    """Return the convolution whose gradient our kernels take back; others, on odd maps, have it spread out before."""
    fits = grid.stride == 2 and grid.kernel <= 3 and grid.height % 2 == 0 and grid.width % 2 == 0
    return grid if fits else replace(grid, stride=1)


def _missing(slab: NormSlab) -> int:
    """Return how many channels the samples of a slab lack."""
    return max(0, _LEAST - slab.stage.inputs)
