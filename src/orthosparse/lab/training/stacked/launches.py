"""Launches of our Triton kernels for runs of layers and for the SGD step, with the block sizes fastest on an H200."""

from functools import cache
from typing import Any

import torch
from torch import Tensor

from orthosparse.lab.models.stages import Grid
from orthosparse.lab.training.stacked.slab import Leaf, Slab

# Fewer programs than this do not fill a GPU: smaller blocks, and more of them, are faster then.
_FULL = 100
# Measured as fastest on an H200. Of linear layers: rows of a block, warps, stages of the pipeline.
_LINEAR, _LINEAR_BACKWARD, _LINEAR_FEW = (64, 8, 3), (32, 4, 2), (16, 4, 2)
_LINEAR_SHARED = 230_400  # bytes of shared memory that _LINEAR needs
# Of convolutions, by the bytes of a number: rows, output channels and input channels of a block, warps, stages.
_CONVOLVE = {2: (128, 128, 64, 8, 3), 4: (128, 64, 64, 8, 3)}
_CONVOLVE_FEW = {2: (64, 128, 128, 4, 3), 4: (64, 64, 64, 4, 3)}
# Of gradients of weights: rows, warps, stages.
_WEIGHT_GRAD, _WEIGHT_GRAD_TRANSPOSED = {2: (64, 8, 3), 4: (32, 8, 3)}, (16, 8, 4)
_SGD = (1024, 4)  # entries, warps
_GROUP = 8  # entries, 32 bytes, that the SGD step reads or leaves out together
# Registers of a thread for gradients of weights, of 256 threads: a multiprocessor then runs two programs, and one loads
# while the other computes.
_REGISTERS = 128
# Set at every launch, as Triton's default differs between its versions.
FUSION = {"enable_fp_fusion": True}


def chain_forward(x: Tensor, weights: Tensor, biases: Tensor, out: Tensor, layers: int, *, keep: bool) -> None:
    """Compute linear layers for ``[networks, rows, width]``; write all outputs, transposed (`keep`), or the last."""
    networks, rows, width = x.shape
    block, warps, stages = _forward_sizes(x)
    _kernels().chain_forward[(-(-rows // block), networks)](
        x.contiguous(), weights, biases, out, rows, layers,
        KEEP=keep, WIDTH=width, BLOCK_ROWS=block, PRECISION=precision(), STAGES=stages, num_warps=warps, **FUSION,
    )  # fmt: skip


def chain_backward(grad: Tensor, outputs: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients before the activations of linear layers, transposed, and the gradient of their input."""
    networks, rows, width = grad.shape
    z_grads, input_grad = torch.empty_like(outputs), torch.empty_like(grad)
    block, warps, stages = _LINEAR_BACKWARD if networks * rows >= _FULL * _LINEAR_BACKWARD[0] else _LINEAR_FEW
    _kernels().chain_backward[(-(-rows // block), networks)](
        grad.contiguous(), outputs, weights, z_grads, input_grad, rows, len(outputs),
        WIDTH=width, BLOCK_ROWS=block, PRECISION=precision(), STAGES=stages, num_warps=warps, **FUSION,
    )  # fmt: skip
    return z_grads, input_grad


def convolve(x: Tensor, weight: Tensor, bias: Tensor, out: Tensor, grid: Grid) -> None:
    """Write the activations of a convolution of ``[networks, batch, features]``."""
    _convolve(x, weight, bias, x, out, grid, BACKWARD=False, ACTIVATED=False)


def convolve_backward(z_grad: Tensor, weight: Tensor, y: Tensor | None, out: Tensor, grid: Grid) -> None:
    """Write the gradient of the input of a convolution; with `y`, that before the activation whose output is `y`."""
    _convolve(z_grad, weight, weight, z_grad if y is None else y, out, grid, BACKWARD=True, ACTIVATED=y is not None)


def _convolve(x: Tensor, weight: Tensor, bias: Tensor, y: Tensor, out: Tensor, grid: Grid, **constants: bool) -> None:
    networks, rows, channels = len(x), x.shape[1] * grid.height * grid.width, weight.shape[1]
    sizes = _CONVOLVE if networks * rows >= _FULL * _CONVOLVE[2][0] else _CONVOLVE_FEW
    block, block_out, block_in, warps, stages = sizes[x.element_size()]
    block_out, block_in = min(block_out, channels), min(block_in, channels)
    _kernels().convolve[(-(-rows // block), channels // block_out, networks)](
        x, weight, bias, y, out, rows,
        **constants, **_shape(grid), CHANNELS=channels, BLOCK_ROWS=block, BLOCK_OUT=block_out, BLOCK_IN=block_in,
        PRECISION=precision(), STAGES=stages, num_warps=warps, **FUSION,
    )  # fmt: skip


def weight_grad(
    slab: Slab, z_grads: Tensor, inputs: Tensor, start: int, rows: int, *, transposed: bool = False
) -> None:
    """Fill the gradients of the weights of some layers, zero off masks, and their norms.

    If `transposed`, as the samples of linear layers are, also fill the gradients of the biases.
    """
    stage, leaf = slab.stage, slab.weight
    assert leaf.off is not None, "weights have masks"
    grid = stage.grid or Grid(1, 1, 1, 1)
    layers, networks, taps = len(z_grads), z_grads.shape[1], grid.kernel**2
    block, warps, stages = _WEIGHT_GRAD_TRANSPOSED if transposed else _WEIGHT_GRAD[z_grads.element_size()]
    squares = torch.empty(layers, networks, taps, dtype=torch.float32, device=z_grads.device)
    stop = start + layers
    _kernels().weight_grad[(taps, layers * networks)](
        z_grads, inputs, leaf.off[start:stop].view(torch.uint8), leaf.gradient[start:stop],
        slab.bias.gradient[start:stop], squares, rows,
        TRANSPOSED=transposed, **_shape(grid), CHANNELS=stage.outputs, BLOCK_ROWS=block, PRECISION=precision(),
        STAGES=stages, num_warps=warps, maxnreg=_REGISTERS, **FUSION,
    )  # fmt: skip
    torch.sqrt(squares.sum(2), out=leaf.norms[start:stop])


def active_groups(leaf: Leaf) -> Tensor | None:
    """Return which groups of entries have an active one; None without masks, or if entries do not fill groups."""
    if leaf.off is None or leaf.off[0, 0].numel() % _GROUP:
        return None
    return leaf.off.view(*leaf.off.shape[:2], -1, _GROUP).all(3).logical_not_().view(torch.uint8)


def sgd_step(
    value: Tensor,
    gradient: Tensor,
    momentum: Tensor,
    stopped: Tensor,
    lr: Tensor,
    rule: tuple[float, float, bool],
    *,
    active: Tensor | None = None,
    copy: Tensor | None = None,
) -> None:
    """Do what `operations.sgd_step` does, in one pass; values are ``[layers, networks, entries]``.

    Args:
        active: see `active_groups`; entries off the masks are zero and stay zero.
        copy: gets the values, rounded to TF32.
    """
    layers, networks, size = value.shape
    weight_decay, momentum_factor, nesterov = rule
    block, warps = _SGD
    _kernels().sgd_step[(layers * networks, -(-size // block))](
        value, gradient, momentum, value if copy is None else copy, value if active is None else active,
        stopped.view(-1).view(torch.uint8), lr.view(-1), networks, size, weight_decay, momentum_factor,
        NESTEROV=nesterov, ROUNDED=copy is not None, MASKED=active is not None, GROUP=_GROUP, BLOCK=block,
        num_warps=warps, **FUSION,
    )  # fmt: skip


def _shape(grid: Grid) -> dict[str, int]:
    return {"HEIGHT": grid.height, "WIDTH": grid.width, "KERNEL": grid.kernel}


def _forward_sizes(x: Tensor) -> tuple[int, int, int]:
    """Return rows, warps and stages for the forward pass of samples ``[networks, rows, width]``."""
    fits = x.device.type != "cuda" or _max_shared_memory(x.device) >= _LINEAR_SHARED
    sizes = _LINEAR if fits else _LINEAR_BACKWARD
    return sizes if x.shape[0] * x.shape[1] >= _FULL * sizes[0] else _LINEAR_FEW


@cache
def _max_shared_memory(device: torch.device) -> int:
    """Return the bytes of shared memory that a program may use on a GPU."""
    return int(getattr(torch.cuda.get_device_properties(device), "shared_memory_per_block_optin"))  # noqa: B009 - untyped


def rounded(tensor: Tensor) -> Tensor:
    """Return float32 rounded to TF32, to nearest, if products are computed in TF32; else the tensor itself.

    Example:
        >>> from orthosparse.lab.training.devices import arithmetic
        >>> with arithmetic("tf32"):
        ...     rounded(torch.tensor([1.0, 1 + 2**-11, 1 + 2**-10 + 2**-12])).sub(1).mul(2**10).tolist()
        [0.0, 1.0, 1.0]
    """
    if not rounds(tensor):
        return tensor
    nearest = ((tensor.contiguous().view(torch.int32) + 0x1000) & -0x2000).view(torch.float32)
    return torch.where(tensor.isnan(), tensor, nearest)  # the sum would turn some NaNs into zeros


def rounds(tensor: Tensor) -> bool:
    """Return whether products would drop bits of this tensor."""
    return tensor.dtype == torch.float32 and precision() == "tf32"


def precision() -> str:
    """Return how float32 products are to be computed, as `devices.arithmetic` has set it."""
    return "tf32" if torch.backends.cuda.matmul.fp32_precision == "tf32" else "ieee"


def _kernels() -> Any:
    """Return the kernels; Triton is imported only where they are used."""
    from orthosparse.lab.training.stacked import chain_kernels

    return chain_kernels
