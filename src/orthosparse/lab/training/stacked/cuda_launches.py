"""Our CUDA kernels for the convolutions of residual networks: their parameters, and how they share out the work."""

import ctypes
from functools import cache

import torch
from torch import Tensor

from orthosparse.lab.models.stages import Stage
from orthosparse.lab.training.stacked import cuda_library
from orthosparse.lab.training.stacked.cuda_library import address, launch, params_fields
from orthosparse.lab.training.stacked.maps import Samples

_CHANNELS = (16, 32, 64)
_CHANNELS_TIMES_SIDE = 512  # of all maps
_TAPS = 9
_BFLOAT16_CAPABILITY = 8  # the first major compute capability with bfloat16


class _ForwardParams(ctypes.Structure):
    _fields_ = params_fields("x scale_shift weights out sums", "images tiles_per_block")


class _BackwardParams(ctypes.Structure):
    _fields_ = params_fields(
        "grad z coefficients x scale_shift weights shortcut_grad previous_z out sums weight_grads",
        "images tiles_per_block",
    )


class _Plan(ctypes.Structure):
    """How a pass is shared out: images of a tile, and what a block needs."""

    _fields_ = params_fields("", "images blocks_per_sm shared_bytes")


def fits(stage: Stage) -> bool:
    """Return whether the kernels compute convolutions of this shape, in bfloat16."""
    grid, channels = stage.grid, stage.inputs
    if grid is None or channels not in _CHANNELS or stage.outputs != channels:
        return False
    side = _CHANNELS_TIMES_SIDE // channels
    return (grid.kernel, grid.stride, grid.circular, grid.height, grid.width) == (3, 1, False, side, side)


@cache
def library(device: torch.device, activation: str) -> ctypes.CDLL | None:
    """Return the kernels for networks of an activation on a GPU; None if it has none or they cannot be built."""
    major, minor = torch.cuda.get_device_capability(device)
    if major < _BFLOAT16_CAPABILITY:
        return None
    built = cuda_library.library("convolutions.cu", f"{major}{minor}", activation)
    return None if built is None else declared(built)


def declared(kernels: ctypes.CDLL) -> ctypes.CDLL:
    """Return a library after declaring the arguments of its functions."""
    integer = ctypes.c_int
    kernels.convolve_forward.argtypes = [integer, integer, integer, _ForwardParams, ctypes.c_void_p]
    kernels.convolve_backward.argtypes = [integer, integer, integer, _BackwardParams, ctypes.c_void_p]
    kernels.get_plans.argtypes = [integer, integer, _Plan * 2]
    return kernels


class Convolutions:
    """The kernels for convolutions of so many channels.

    Attributes:
        fit: whether the device has shared memory for them.

    Args:
        device: its number.
        processors: the number of multiprocessors that share the work.
    """

    def __init__(self, kernels: ctypes.CDLL, channels: int, device: int, processors: int) -> None:
        self._kernels, self._channels, self._processors = kernels, channels, processors
        plans = (_Plan * 2)()
        self.fit = bool(kernels.get_plans(channels, device, plans))
        self._forward, self._backward = plans

    def convolve(self, x: Samples, weights: Tensor, *, with_sums: bool) -> tuple[Tensor, Tensor | None]:
        """Return the convolution of samples ``[networks, rows, channels]``, and its sums by tile if `with_sums`."""
        samples, scale_shift = _unpacked(x)
        out, images = torch.empty_like(samples), self._images(samples)
        tiles, blocks, tiles_per_block = self._shares(images, len(samples), self._forward)
        sums = self._new_sums(samples, tiles) if with_sums else None
        pointers = (samples, scale_shift, weights, out, sums)
        params = _ForwardParams(*map(address, pointers), images, tiles_per_block)
        launch(self._kernels.convolve_forward, samples, self._channels, len(samples), blocks, params)
        return out, sums

    def weight_grads_shape(self, grad: Tensor) -> tuple[int, int, int, int]:
        """Return the shape of the gradients of the weights by block, ``[networks, blocks, out, taps * in]``."""
        blocks = self._shares(self._images(grad), len(grad), self._backward)[1]
        return len(grad), blocks, self._channels, _TAPS * self._channels

    def convolve_backward(
        self,
        grad: Tensor,
        z: Tensor,
        coefficients: Tensor,
        x: Samples,
        weights: Tensor,
        *,
        weight_grads: Tensor,
        shortcut_grad: Tensor | None = None,
        previous_z: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Return the gradient before the activation whose output is `x`, and its sums by tile; fill `weight_grads`.

        Args:
            grad, z: the gradient of the normalised convolution, and the convolution.
            coefficients: what the normalisation does to gradients, see `maps`.
            weight_grads: of the shape `weight_grads_shape`.
            shortcut_grad: another gradient of `x`.
            previous_z: the input of the normalisation before the activation; the second sum is of its product.
        """
        samples, scale_shift = _unpacked(x)
        out, images = torch.empty_like(grad), self._images(grad)
        tiles, blocks, tiles_per_block = self._shares(images, len(grad), self._backward)
        sums = self._new_sums(grad, tiles)
        inputs = (grad, z, coefficients, samples, scale_shift, weights, shortcut_grad, previous_z)
        params = _BackwardParams(*map(address, (*inputs, out, sums, weight_grads)), images, tiles_per_block)
        launch(self._kernels.convolve_backward, grad, self._channels, len(grad), blocks, params)
        return out, sums

    def _images(self, x: Tensor) -> int:
        return x.shape[1] // (_CHANNELS_TIMES_SIDE // self._channels) ** 2

    def _shares(self, images: int, networks: int, plan: _Plan) -> tuple[int, int, int]:
        """Return the tiles of a network, the blocks that share them, and the tiles of each: one wave of blocks."""
        tiles = -(-images // plan.images)
        tiles_per_block = -(-tiles // max(1, self._processors * plan.blocks_per_sm // networks))
        return tiles, -(-tiles // tiles_per_block), tiles_per_block

    def _new_sums(self, x: Tensor, tiles: int) -> Tensor:
        return torch.empty(len(x), tiles, 2, self._channels, dtype=torch.float32, device=x.device)


def _unpacked(x: Samples) -> tuple[Tensor, Tensor | None]:
    """Return the samples, and the scale and shift that normalise them."""
    return (x, None) if isinstance(x, Tensor) else (x.z, x.scale_shift)
