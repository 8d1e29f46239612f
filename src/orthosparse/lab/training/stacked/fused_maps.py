"""The operations between feature maps by our own GPU kernels: fewer launches and less memory traffic than torch's."""

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
from orthosparse.lab.training.stacked.maps import DeferredNorm, Maps, PreviousLayer, Samples, grid_of
from orthosparse.lab.training.stacked.operations import spread_out
from orthosparse.lab.training.stacked.patches import Tiling, spread_kernels
from orthosparse.lab.training.stacked.slab import NormSlab

_CHANNELS = (16, 32, 64)
_NORM_CHANNELS = (16, 32, 64, 128, 256, 512)
_MIN_CHANNELS = 4  # that are loaded at once


def maps_of(
    stages: Sequence[Stage], activation: str, dtype: torch.dtype, device: torch.device, fused: bool | None
) -> Maps:
    """Return the operations between feature maps by our kernels if they fit and are chosen, else by torch's."""
    if not chosen(fused, device) or not fits(stages, dtype):
        return Maps(dtype)
    may_use_cuda = dtype == torch.bfloat16 and device.type == "cuda"
    return FusedMaps(dtype, _cuda_kernels(stages, activation, device) if may_use_cuda else {})


def _cuda_kernels(stages: Sequence[Stage], activation: str, device: torch.device) -> dict[int, Convolutions]:
    """Return the CUDA kernels for these stages that have enough shared memory on the device, by channels."""
    library = cuda_launches.library(device, activation)
    if library is None:
        return {}
    index = torch.cuda.current_device() if device.index is None else device.index
    processors = torch.cuda.get_device_properties(device).multi_processor_count
    fitting = {stage.inputs for stage in stages if cuda_launches.fits(stage)}
    kernels = {channels: Convolutions(library, channels, index, processors) for channels in fitting}
    return {channels: each for channels, each in kernels.items() if each.fit}


def norms_of(channels: Sequence[int], dtype: torch.dtype, device: torch.device, fused: bool | None) -> Maps:
    """Return the operations of normalisations alone, for layers with these output channels; see `maps_of`."""
    fitting = all(count in _NORM_CHANNELS for count in channels) and dtype in (torch.float32, torch.bfloat16)
    return FusedMaps(dtype) if chosen(fused, device) and fitting else Maps(dtype)


def fits(stages: Sequence[Stage], dtype: torch.dtype) -> bool:
    """Return whether our kernels compute such networks, of which the first stage is the stem."""
    stem, *others = stages
    channels = all(stage.inputs in _CHANNELS for stage in others) and all(
        stage.outputs in _CHANNELS for stage in stages
    )
    return channels and stem.inputs <= _MIN_CHANNELS and dtype in (torch.float32, torch.bfloat16)


class FusedMaps(Maps):
    """The operations of a residual network, one launch each; sums are ``[networks, tiles, 2, channels]`` here.

    Args:
        cuda_kernels: kernels in CUDA for the convolutions that fit them (`cuda_launches.fits`), by channels. Kernels in
            Triton compute all the others.
    """

    def __init__(self, dtype: torch.dtype, cuda_kernels: Mapping[int, Convolutions] = MappingProxyType({})) -> None:
        super().__init__(dtype)
        self._cuda_kernels = cuda_kernels
        # All are kept: a captured graph uses those that it saw, even after a shorter batch has needed others.
        self._forward_kernels: dict[NormSlab, Tensor] = {}
        self._backward_kernels: dict[NormSlab, Tensor] = {}
        self._weight_grads: dict[tuple[NormSlab, tuple[int, ...]], Tensor] = {}
        self._last_weight_grads: dict[NormSlab, Tensor] = {}

    def refresh(self, slab: NormSlab) -> None:
        """Lay the kernels of a slab out for patches, for the forward and the backward pass."""
        if self._cuda_kernel(slab) is not None:
            super().refresh(slab)
            return
        grid, stage, value = grid_of(slab), slab.stage, slab.weight.value
        kernels = value.view(*value.shape[:3], grid.kernel, grid.kernel, stage.inputs)
        kernels = functional.pad(kernels, (0, _missing_channels(slab)))
        self._lay_out(self._forward_kernels, slab, kernels, plan_forward(grid, stage.outputs)[0], grid.stride)
        if not _missing_channels(slab):  # the gradient of the images is not needed
            grid, transposed = _backward_grid(grid), kernels.flip(3, 4).transpose(2, 5)
            tiling, _ = plan_backward(grid, stage.inputs)
            self._lay_out(self._backward_kernels, slab, transposed, tiling, -grid.stride)

    def _lay_out(
        self, laid_out: dict[NormSlab, Tensor], slab: NormSlab, kernels: Tensor, tiling: Tiling, stride: int
    ) -> None:
        if slab not in laid_out:
            layers, networks, outputs, _, _, inputs = kernels.shape
            shape = (layers, networks, math.prod(tiling.window) * inputs, math.prod(tiling.patch) * outputs)
            laid_out[slab] = kernels.new_zeros(shape, dtype=self.dtype)
        spread_kernels(kernels, tiling, stride, laid_out[slab])

    def network_input(self, x: Tensor, slab: NormSlab) -> Tensor:
        """Return the samples of the network with channels of zeros added, so that they are loaded at once."""
        return functional.pad(x, (0, _missing_channels(slab)))

    def conv_input(self, slab: NormSlab, z: Tensor, scale_shift: Tensor, activation: str) -> Samples:
        """Return the input of the convolutions of a slab; kernels in CUDA normalise and activate it themselves."""
        if self._cuda_kernel(slab) is not None:
            return DeferredNorm(z, scale_shift)  # the kernels are built for the activation
        return super().conv_input(slab, z, scale_shift, activation)

    def convolve(self, x: Samples, slab: NormSlab, layer: int, *, with_sums: bool) -> tuple[Tensor, Tensor | None]:
        """Return the convolution of the samples and, if `with_sums`, the sums of it and of its squares."""
        if (cuda_kernel := self._cuda_kernel(slab)) is not None:
            return cuda_kernel.convolve(x, self._weights[slab][layer], with_sums=with_sums)
        assert isinstance(x, Tensor), "see `conv_input`"
        kernel, outputs = self._forward_kernels[slab][layer], slab.stage.outputs
        return map_launches.convolve(x, kernel, plan_forward(grid_of(slab), outputs), outputs, with_sums=with_sums)

    def backward(
        self, slab: NormSlab, layer: int, grad: Tensor, z: Tensor, sums: Tensor, x: Samples, **options: Any
    ) -> tuple[Tensor, Tensor | None]:
        """Compute the backward pass of a layer, in one launch if a kernel in CUDA fits; see `Maps`."""
        if (cuda_kernel := self._cuda_kernel(slab)) is None:
            return super().backward(slab, layer, grad, z, sums, x, **options)
        del options["activation"]  # as in `conv_input`
        coefficients = self.norm_grads(slab, layer, sums, grad.shape[1])
        weight_grads = self._new_weight_grads(slab, cuda_kernel.weight_grads_shape(grad))[layer]
        weights = self._weights[slab][layer]
        return cuda_kernel.convolve_backward(grad, z, coefficients, x, weights, weight_grads=weight_grads, **options)

    def convolve_backward(
        self,
        grad: Tensor,
        slab: NormSlab,
        layer: int,
        *,
        shortcut_grad: Tensor | None = None,
        previous: PreviousLayer | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Return the gradient of the input of a convolution; see `Maps`."""
        grid, inputs = grid_of(slab), slab.stage.inputs
        if (backward_grid := _backward_grid(grid)) != grid:
            images = grad.shape[1] // (grid.out_height * grid.out_width)
            spread = spread_out(grad.view(len(grad), images, -1), grid, grad.shape[2])
            grad = spread.view(len(grad), -1, grad.shape[2])
        plan, kernel = plan_backward(backward_grid, inputs), self._backward_kernels[slab][layer]
        return map_launches.convolve_backward(grad, kernel, plan, inputs, shortcut_grad, previous)

    def weight_grad(self, slab: NormSlab, layer: int, grad: Tensor, x: Tensor) -> None:
        """Write the product of each share of the patches with its windows."""
        plan = plan_weight_grad(grid_of(slab), slab.stage.outputs)
        weight_grads = self._new_weight_grads(slab, map_launches.weight_grads_shape(grad, x, plan))
        map_launches.weight_grad(grad, x, weight_grads[layer], plan)

    def _new_weight_grads(self, slab: NormSlab, shape: tuple[int, ...]) -> Tensor:
        """Return the tensor in which each layer of a slab writes gradients of this shape, which are then summed."""
        if (slab, shape) not in self._weight_grads:
            shapes, device = (len(slab.stage.names), *shape), slab.weight.value.device
            self._weight_grads[slab, shape] = torch.empty(shapes, dtype=torch.float32, device=device)
        self._last_weight_grads[slab] = self._weight_grads[slab, shape]
        return self._last_weight_grads[slab]

    def _cuda_kernel(self, slab: NormSlab) -> Convolutions | None:
        """Return the kernel in CUDA for the convolutions of a slab, if there is one."""
        return self._cuda_kernels.get(slab.stage.inputs) if cuda_launches.fits(slab.stage) else None

    def finish_weight_grads(self, slab: NormSlab) -> None:
        """Add up the gradients of all shares, and those of all outputs of a patch; mask them and compute norms."""
        if self._cuda_kernel(slab) is not None:
            torch.sum(self._last_weight_grads[slab], 2, out=slab.weight.gradient)
            slab.mask_gradients()
            return
        grid, stage, laid_out = grid_of(slab), slab.stage, self._last_weight_grads[slab].sum(2)
        tiling, side = plan_weight_grad(grid, stage.outputs)[0], grid.kernel
        shape = (*laid_out.shape[:2], *tiling.patch, stage.outputs, *tiling.window, -1)
        laid_out = laid_out.view(shape)[..., : stage.inputs]
        gradient = slab.weight.gradient.view(*laid_out.shape[:2], stage.outputs, side, side, stage.inputs)
        for index, (row, column) in enumerate(product(*map(range, tiling.patch))):
            top, left = row * grid.stride, column * grid.stride
            of_output = laid_out[:, :, row, column, :, top : top + side, left : left + side]
            gradient.copy_(of_output) if index == 0 else gradient.add_(of_output)
        slab.mask_gradients()

    def sums(self, grad: Tensor, z: Tensor) -> Tensor:
        """Return the sums of a gradient and of its product with `z`, tile by tile."""
        return map_launches.activation_backward(grad, PreviousLayer(grad, z, "linear"), None)

    def scale_shift(self, slab: NormSlab, layer: int, sums: Tensor, rows: int) -> Tensor:
        """Return the scale, shift and mean for a batch with these sums; the slab keeps the statistics."""
        slab.samples = rows
        return map_launches.scale_shift(slab, layer, sums, rows)

    def batch_scale_shift(self, slab: NormSlab, layer: int, rows: Tensor) -> Tensor:
        """Return the scale, shift and mean for a batch; the slab keeps the statistics."""
        return self.scale_shift(slab, layer, self.sums(rows, rows), rows.shape[1])

    norm_grads = staticmethod(map_launches.norm_grads)
    normalise = staticmethod(map_launches.normalise)
    norm_backward = staticmethod(map_launches.norm_backward)

    def activation_backward(self, grad: Tensor, previous: PreviousLayer) -> tuple[Tensor, Tensor]:
        """Return the gradient before an activation, and its sums for the normalisation before that."""
        out = torch.empty_like(grad)
        return out, map_launches.activation_backward(grad, previous, out)


def _backward_grid(grid: Grid) -> Grid:
    """Return the grid of the backward convolution; stride 1 if the gradient has to be spread out first, on odd maps."""
    fits = grid.stride == 2 and grid.kernel <= 3 and grid.height % 2 == 0 and grid.width % 2 == 0
    return grid if fits else replace(grid, stride=1)


def _missing_channels(slab: NormSlab) -> int:
    """Return how many channels have to be added to the samples of a slab."""
    return max(0, _MIN_CHANNELS - slab.stage.inputs)
