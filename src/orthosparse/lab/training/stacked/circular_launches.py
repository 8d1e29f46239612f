"""Our CUDA kernels for runs of circular convolutions, on Hopper: many layers in one launch."""

import ctypes
from functools import cache

import torch
from torch import Tensor

from orthosparse.lab.models.stages import Grid, Stage
from orthosparse.lab.training.stacked import cuda_library
from orthosparse.lab.training.stacked.cuda_library import address, launch, params_fields

_CHANNELS, _GRID, _ACTIVATION = 128, Grid(8, 8, 3, 1), "tanh"
_PIXELS, _TAPS, _GROUP = 64, 9, 8  # of a map, of a kernel, and channels that are contiguous
_WEIGHTS = _CHANNELS * _CHANNELS * _TAPS  # of a layer
_HOPPER = (9, 0)


class _ChainParams(ctypes.Structure):
    _fields_ = params_fields("x weights bias y out last_out", "images networks layers direction")


class _WeightGradParams(ctypes.Structure):
    _fields_ = params_fields("grad x off weight_grad squares", "images")


class _PackParams(ctypes.Structure):
    _fields_ = params_fields("weights forward backward", "")


class _BiasGradParams(ctypes.Structure):
    _fields_ = params_fields("grad bias_grad", "images")


def fits(stage: Stage, dtype: torch.dtype) -> bool:
    """Return whether the kernels compute such a run."""
    square = stage.inputs == stage.outputs == _CHANNELS and stage.grid == _GRID and stage.blocks is None
    return square and stage.activation == _ACTIVATION and dtype == torch.bfloat16


@cache
def kernels_for(device: torch.device) -> "CircularKernels | None":
    """Return the kernels, or None where they cannot run: on a GPU other than Hopper, or without nvcc (logged)."""
    if device.type != "cuda" or torch.cuda.get_device_capability(device) != _HOPPER:
        return None
    library = cuda_library.library("circular.cu", "90a", _ACTIVATION)
    return None if library is None else CircularKernels(library)


class CircularKernels:
    """The kernels; samples are ``[networks, images, 16, 64, 8]``: groups of 8 channels, then pixels."""

    def __init__(self, library: ctypes.CDLL) -> None:
        integer, pointer = ctypes.c_int, ctypes.c_void_p
        library.pack_weights.argtypes = [_PackParams, integer, pointer]
        library.chain_forward.argtypes = library.chain_backward.argtypes = [_ChainParams, pointer]
        library.weight_grad.argtypes = [_WeightGradParams, integer, pointer]
        library.bias_grad.argtypes = [_BiasGradParams, integer, pointer]
        self._library = library

    def pack(self, weights: Tensor) -> Tensor:
        """Return weights ``[layers, networks, out, taps * in]`` in the layouts of the forward and backward passes."""
        layers, networks = weights.shape[:2]
        packed = torch.empty(2, layers, networks, _WEIGHTS, dtype=torch.bfloat16, device=weights.device)
        params = _PackParams(address(weights), address(packed[0]), address(packed[1]))
        launch(self._library.pack_weights, weights, params, layers * networks)
        return packed

    def forward(self, x: Tensor, weights: Tensor, biases: Tensor, out: Tensor, *, keep: bool) -> None:
        """Compute the layers; write all outputs, ``[layers, networks, ...]`` (`keep`), or only the last."""
        images, all_out, last_out = x.shape[1], out if keep else None, None if keep else out
        pointers = (x, weights, biases, None, all_out, last_out)
        params = _ChainParams(*map(address, pointers), images, len(x), len(weights), 1)
        launch(self._library.chain_forward, x, params)

    def backward(self, z_grads: Tensor, inputs: Tensor, weights: Tensor, input_grad: Tensor | None) -> None:
        """Fill the gradients before the activations of all layers but the last, and the gradient of the input.

        Args:
            z_grads: the gradients before the activations, ``[layers, networks, ...]``; that of the last layer is given.
            inputs: of the layers.
            input_grad: gets the gradient of the input of the first layer; None where it is not needed.
        """
        layers, networks, images = z_grads.shape[:3]
        steps = layers if input_grad is not None else layers - 1
        if steps == 0:
            return
        all_out = z_grads[-2] if layers > 1 else None
        pointers = (z_grads[-1], weights[-1], None, inputs[-1], all_out, input_grad)
        params = _ChainParams(*map(address, pointers), images, networks, steps, -1)
        launch(self._library.chain_backward, z_grads, params)

    def weight_grad(self, z_grads: Tensor, inputs: Tensor, off: Tensor, out: Tensor) -> Tensor:
        """Write the gradients of the weights, zero off the masks; return their norms, ``[layers, networks]``."""
        layers, networks, images = z_grads.shape[:3]
        squares = torch.empty(layers, networks, _TAPS, dtype=torch.float32, device=z_grads.device)
        params = _WeightGradParams(*map(address, (z_grads, inputs, off, out, squares)), images)
        launch(self._library.weight_grad, z_grads, params, layers * networks)
        return squares.sum(2).sqrt_()

    def bias_grad(self, z_grads: Tensor, out: Tensor) -> None:
        """Write the sums of gradients over images and pixels, ``[layers, networks, channels]``."""
        layers, networks, images = z_grads.shape[:3]
        params = _BiasGradParams(address(z_grads), address(out), images)
        launch(self._library.bias_grad, z_grads, params, layers * networks)


def grouped(x: Tensor) -> Tensor:
    """Return samples ``[networks, images, pixels * channels]`` in the layout of the kernels."""
    return x.reshape(*x.shape[:2], _PIXELS, _CHANNELS // _GROUP, _GROUP).transpose(2, 3).contiguous()


def ungrouped(x: Tensor) -> Tensor:
    """Return samples in the layout of the kernels as ``[networks, images, pixels * channels]``."""
    return x.transpose(2, 3).reshape(*x.shape[:2], -1)
