"""Our CUDA kernels for the convolutions of residual networks: what they are given, and how work is shared out."""

import ctypes
from functools import cache

import torch
from torch import Tensor

from orthosparse.lab.models.stages import Stage
from orthosparse.lab.training.stacked import cuda_library
from orthosparse.lab.training.stacked.cuda_library import address, launch
from orthosparse.lab.training.stacked.maps import Samples

_CHANNELS = (16, 32, 64)
_SQUARE = 512  # channels times the side of a map


class _Forward(ctypes.Structure):
    _fields_ = (
        *[(name, ctypes.c_void_p) for name in ("x", "scale_shift", "weights", "out", "sums")],
        *[(name, ctypes.c_int) for name in ("images", "tiles_of_block")],
    )


class _Backward(ctypes.Structure):
    _pointers = ("v", "z", "coefficients", "x", "scale_shift", "weights", "add", "below", "out", "sums", "products")
    _fields_ = (
        *[(name, ctypes.c_void_p) for name in _pointers],
        *[(name, ctypes.c_int) for name in ("images", "tiles_of_block")],
    )


class _Plan(ctypes.Structure):
    """How a pass is shared out: images of a tile, blocks of a multiprocessor, bytes of shared memory of a block."""

    _fields_ = tuple((name, ctypes.c_int) for name in ("images", "blocks", "bytes"))


def fits(stage: Stage) -> bool:
    """Return whether the kernels compute convolutions of this shape, in bfloat16."""
    grid, channels = stage.grid, stage.inputs
    if grid is None or channels not in _CHANNELS or stage.outputs != channels:
        return False
    side = _SQUARE // channels
    return (grid.kernel, grid.stride, grid.circular, grid.height, grid.width) == (3, 1, False, side, side)


@cache
def library(device: torch.device, activation: str) -> ctypes.CDLL | None:
    """Return the kernels for networks of an activation on a GPU; None where it has none or they cannot be built."""
    major, minor = torch.cuda.get_device_capability(device)
    if major < 8:
        return None  # no bfloat16
    found = cuda_library.library("convolutions.cu", f"{major}{minor}", activation)
    return None if found is None else declared(found)


def declared(kernels: ctypes.CDLL) -> ctypes.CDLL:
    """Return built kernels that know what they are given."""
    number = ctypes.c_int
    kernels.convolve_forward.argtypes = [number, number, number, _Forward, ctypes.c_void_p]
    kernels.convolve_backward.argtypes = [number, number, number, _Backward, ctypes.c_void_p]
    kernels.plans_of.argtypes = [number, number, _Plan * 2]
    return kernels


class Convolutions:
    """The kernels for convolutions of so many channels.

    Attributes:
        fit: whether blocks have room on the device.

    Args:
        device: its number.
        processors: multiprocessors that blocks are shared out to.
    """

    def __init__(self, kernels: ctypes.CDLL, channels: int, device: int, processors: int) -> None:
        self._kernels, self._channels, self._processors = kernels, channels, processors
        plans = (_Plan * 2)()
        self.fit = bool(kernels.plans_of(channels, device, plans))
        self._forward, self._backward = plans

    def convolve(self, x: Samples, weights: Tensor, *, counted: bool) -> tuple[Tensor, Tensor | None]:
        """Return the convolution of samples ``[networks, rows, channels]``, and its sums by tile if `counted`."""
        z, scale_shift = _read(x)
        out, images = torch.empty_like(z), self._images(z)
        tiles, blocks, each = self._shares(images, len(z), self._forward)
        sums = self._sums(z, tiles) if counted else None
        given = _Forward(address(z), address(scale_shift), address(weights), address(out), address(sums), images, each)
        launch(self._kernels.convolve_forward, z, self._channels, len(z), blocks, given)
        return out, sums

    def products_shape(self, v: Tensor) -> tuple[int, int, int, int]:
        """Return the shape of the products whose sums over blocks, its second axis, are gradients of weights."""
        blocks = self._shares(self._images(v), len(v), self._backward)[1]
        return len(v), blocks, self._channels, 9 * self._channels

    def convolve_backward(
        self,
        v: Tensor,
        z: Tensor,
        coefficients: Tensor,
        x: Samples,
        weights: Tensor,
        *,
        products: Tensor,
        add: Tensor | None = None,
        below: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Return the gradient before the activation that gave `x`, and its sums by tile with `below`; fill `products`.

        Args:
            v, z: the gradient after the normalisation of the convolution, and the convolution.
            coefficients: what the normalisation does to gradients.
            add: another gradient of `x`.
        """
        samples, scale_shift = _read(x)
        out, images = torch.empty_like(v), self._images(v)
        tiles, blocks, each = self._shares(images, len(v), self._backward)
        sums = self._sums(v, tiles)
        pointers = (v, z, coefficients, samples, scale_shift, weights, add, below, out, sums, products)
        given = _Backward(*map(address, pointers), images, each)
        launch(self._kernels.convolve_backward, v, self._channels, len(v), blocks, given)
        return out, sums

    def _images(self, x: Tensor) -> int:
        return x.shape[1] // (_SQUARE // self._channels) ** 2

    def _shares(self, images: int, networks: int, plan: _Plan) -> tuple[int, int, int]:
        """Return the tiles of a network, the blocks that share them, and the tiles of each: one wave of blocks."""
        tiles = -(-images // plan.images)
        each = -(-tiles // max(1, self._processors * plan.blocks // networks))
        return tiles, -(-tiles // each), each

    def _sums(self, x: Tensor, tiles: int) -> Tensor:
        return torch.empty(len(x), tiles, 2, self._channels, dtype=torch.float32, device=x.device)


def _read(x: Samples) -> tuple[Tensor, Tensor | None]:
    """Return the samples, and what normalises them."""
    return (x, None) if isinstance(x, Tensor) else (x.z, x.scale_shift)
