"""Our CUDA kernels for runs of circular convolutions, on Hopper: many layers in one launch."""

import ctypes
from functools import cache

import torch
from torch import Tensor

from orthosparse.lab.models.stages import Grid, Stage
from orthosparse.lab.training.stacked import cuda_library
from orthosparse.lab.training.stacked.cuda_library import address, launch

_CHANNELS, _GRID, _ACTIVATION = 128, Grid(8, 8, 3, 1), "tanh"
_WEIGHTS = _CHANNELS * _CHANNELS * 9  # of a layer
_HOPPER = (9, 0)


def _structure(pointers: str, numbers: str) -> tuple[tuple[str, type], ...]:
    pairs = [(name, ctypes.c_void_p) for name in pointers.split()]
    return (*pairs, *[(name, ctypes.c_int) for name in numbers.split()])


class _Chain(ctypes.Structure):
    _fields_ = _structure("x weights bias below out last", "images networks layers down")


class _WeightGrad(ctypes.Structure):
    _fields_ = _structure("grad x off out squares", "images")


class _Pack(ctypes.Structure):
    _fields_ = _structure("weights forward backward", "")


class _Sum(ctypes.Structure):
    _fields_ = _structure("x out", "images")


def fits(stage: Stage, dtype: torch.dtype) -> bool:
    """Return whether the kernels compute such a run."""
    square = stage.inputs == stage.outputs == _CHANNELS and stage.grid == _GRID and stage.blocks is None
    return square and stage.activation == _ACTIVATION and dtype == torch.bfloat16


@cache
def kernels_for(device: torch.device) -> "CircularKernels | None":
    """Return the kernels, or None where they cannot run: on a GPU that is no Hopper, or without nvcc (logged)."""
    if device.type != "cuda" or torch.cuda.get_device_capability(device) != _HOPPER:
        return None
    found = cuda_library.library("circular.cu", "90a", _ACTIVATION)
    return None if found is None else CircularKernels(found)


class CircularKernels:
    """The kernels; samples are ``[networks, images, 16, 64, 8]``: channels in groups of 8, then pixels."""

    def __init__(self, library: ctypes.CDLL) -> None:
        number, pointer = ctypes.c_int, ctypes.c_void_p
        library.pack_weights.argtypes = [_Pack, number, pointer]
        library.chain_forward.argtypes = library.chain_backward.argtypes = [_Chain, pointer]
        library.weight_grad.argtypes = [_WeightGrad, number, pointer]
        library.sum_channels.argtypes = [_Sum, number, pointer]
        self._library = library

    def pack(self, weights: Tensor) -> Tensor:
        """Return weights ``[layers, networks, out, taps * in]`` in the orders of the forward and the backward pass."""
        layers, networks = weights.shape[:2]
        packed = torch.empty(2, layers, networks, _WEIGHTS, dtype=torch.bfloat16, device=weights.device)
        given = _Pack(address(weights), address(packed[0]), address(packed[1]))
        launch(self._library.pack_weights, weights, given, layers * networks)
        return packed

    def forward(self, x: Tensor, weights: Tensor, biases: Tensor, out: Tensor, *, keep: bool) -> None:
        """Take samples through layers; write all outputs, ``[layers, networks, ...]`` (`keep`), or the last."""
        images, every, last = x.shape[1], out if keep else None, None if keep else out
        pointers = (x, weights, biases, None, every, last)
        given = _Chain(*map(address, pointers), images, len(x), len(weights), 1)
        launch(self._library.chain_forward, x, given)

    def backward(self, before: Tensor, inputs: Tensor, weights: Tensor, out: Tensor | None) -> None:
        """Fill the gradients before the activations of layers, but for the last, which are there; and of their input.

        Args:
            before: the gradients, ``[layers, networks, ...]``.
            inputs: what the layers saw.
            out: gets the gradient of the input of the first layer; None where nobody needs it.
        """
        layers, networks, images = before.shape[:3]
        steps = layers if out is not None else layers - 1
        if steps == 0:
            return
        every = before[-2] if layers > 1 else None
        pointers = (before[-1], weights[-1], None, inputs[-1], every, out)
        given = _Chain(*map(address, pointers), images, networks, steps, -1)
        launch(self._library.chain_backward, before, given)

    def weight_grad(self, before: Tensor, inputs: Tensor, off: Tensor, out: Tensor) -> Tensor:
        """Write the gradients of weights, zero off the masks; return their norms, ``[layers, networks]``."""
        layers, networks, images = before.shape[:3]
        squares = torch.empty(layers, networks, 9, dtype=torch.float32, device=before.device)
        given = _WeightGrad(*map(address, (before, inputs, off, out, squares)), images)
        launch(self._library.weight_grad, before, given, layers * networks)
        return squares.sum(2).sqrt_()

    def bias_grad(self, before: Tensor, out: Tensor) -> None:
        """Write the sums of gradients over images and pixels, ``[layers, networks, channels]``."""
        layers, networks, images = before.shape[:3]
        given = _Sum(address(before), address(out), images)
        launch(self._library.sum_channels, before, given, layers * networks)


def grouped(x: Tensor) -> Tensor:
    """Return rows of numbers ``[networks, images, pixels * channels]`` as the kernels read them."""
    return x.reshape(*x.shape[:2], 64, 16, 8).transpose(2, 3).contiguous()


def as_rows(x: Tensor) -> Tensor:
    """Return what `grouped` was given."""
    return x.transpose(2, 3).reshape(*x.shape[:2], -1)
