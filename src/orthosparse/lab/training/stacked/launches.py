"""Launches of our GPU kernels, in the sizes that were fastest on an H200, and what goes with them."""

from functools import cache
from typing import Any

import torch
from torch import Tensor

from orthosparse.lab.models.stages import Grid
from orthosparse.lab.training.stacked.slab import Leaf, Slab

# Below so many programs a GPU is not full: rather more of them, each with fewer rows.
_FULL = 100
# Rows of a program, warps, and stages of the pipeline, of linear layers; of maps, output and input channels come second
# and third. By the bytes of a number where they differ. As measured fastest on an H200.
_LINEAR, _LINEAR_BACKWARD, _LINEAR_FEW = (64, 8, 3), (32, 4, 2), (16, 4, 2)
_ROOMY = 230_400  # bytes that the first of them takes inside a multiprocessor
_MAPS = {2: (128, 128, 64, 8, 3), 4: (128, 64, 64, 8, 3)}
_MAPS_FEW = {2: (64, 128, 128, 4, 3), 4: (64, 64, 64, 4, 3)}
_WEIGHT_GRAD, _WEIGHT_GRAD_TRANSPOSED = {2: (64, 8, 3), 4: (32, 8, 3)}, (16, 8, 4)
_SGD, _GROUP = (1024, 4), 8
# Of each of 256 threads: two programs then have room in a multiprocessor, and one loads while the other computes.
_REGISTERS = 128
# Said at every launch: what Triton does by itself differs between its versions.
FUSION = {"enable_fp_fusion": True}


def chain_forward(x: Tensor, weights: Tensor, biases: Tensor, out: Tensor, layers: int, *, keep: bool) -> None:
    """Take samples ``[members, rows, width]`` through linear layers; write all outputs, transposed (`keep`), or one."""
    members, rows, width = x.shape
    tile, warps, stages = _ahead_sizes(x)
    _kernels().chain_forward[(-(-rows // tile), members)](
        x.contiguous(), weights, biases, out, rows, layers,
        KEEP=keep, WIDTH=width, ROWS=tile, PRECISION=precision(), STAGES=stages, num_warps=warps, **FUSION,
    )  # fmt: skip


def chain_backward(grad: Tensor, outputs: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients before the activations of linear layers, transposed, and of their input."""
    members, rows, width = grad.shape
    before, found = torch.empty_like(outputs), torch.empty_like(grad)
    tile, warps, stages = _LINEAR_BACKWARD if members * rows >= _FULL * _LINEAR_BACKWARD[0] else _LINEAR_FEW
    _kernels().chain_backward[(-(-rows // tile), members)](
        grad.contiguous(), outputs, weights, before, found, rows, len(outputs),
        WIDTH=width, ROWS=tile, PRECISION=precision(), STAGES=stages, num_warps=warps, **FUSION,
    )  # fmt: skip
    return before, found


def convolve(x: Tensor, weight: Tensor, bias: Tensor, out: Tensor, grid: Grid) -> None:
    """Write the activations of a convolution of ``[members, batch, features]``."""
    _convolve(x, weight, bias, x, out, grid, BACKWARD=False, ACTIVATED=False)


def convolve_backward(before: Tensor, weight: Tensor, y: Tensor | None, out: Tensor, grid: Grid) -> None:
    """Write the gradient of what a convolution saw, or that before the activation which gave it, `y`."""
    _convolve(before, weight, weight, before if y is None else y, out, grid, BACKWARD=True, ACTIVATED=y is not None)


def _convolve(x: Tensor, weight: Tensor, bias: Tensor, y: Tensor, out: Tensor, grid: Grid, **constants: bool) -> None:
    members, rows, width = len(x), x.shape[1] * grid.height * grid.width, weight.shape[1]
    sizes = _MAPS if members * rows >= _FULL * _MAPS[2][0] else _MAPS_FEW
    tile, columns, inner, warps, stages = sizes[x.element_size()]
    columns, inner = min(columns, width), min(inner, width)
    _kernels().convolve[(-(-rows // tile), width // columns, members)](
        x, weight, bias, y, out, rows,
        **constants, **_shape(grid), WIDTH=width, ROWS=tile, COLUMNS=columns, INNER=inner,
        PRECISION=precision(), STAGES=stages, num_warps=warps, **FUSION,
    )  # fmt: skip


def weight_grad(slab: Slab, before: Tensor, inputs: Tensor, start: int, rows: int, *, transposed: bool = False) -> None:
    """Fill the gradients of the weights of some layers, zero off masks, and norms; if `transposed`, of biases."""
    stage, leaf = slab.stage, slab.weight
    assert leaf.off is not None, "weights have masks"
    grid = stage.grid or Grid(1, 1, 1, 1)
    layers, members, taps = len(before), before.shape[1], grid.kernel**2
    tile, warps, stages = _WEIGHT_GRAD_TRANSPOSED if transposed else _WEIGHT_GRAD[before.element_size()]
    squares = torch.empty(layers, members, taps, dtype=torch.float32, device=before.device)
    stop = start + layers
    _kernels().weight_grad[(taps, layers * members)](
        before, inputs, leaf.off[start:stop].view(torch.uint8), leaf.gradient[start:stop],
        slab.bias.gradient[start:stop], squares, rows,
        TRANSPOSED=transposed, **_shape(grid), WIDTH=stage.outputs, ROWS=tile, PRECISION=precision(), STAGES=stages,
        num_warps=warps, maxnreg=_REGISTERS, **FUSION,
    )  # fmt: skip
    torch.sqrt(squares.sum(2), out=leaf.norms[start:stop])


def active_groups(leaf: Leaf) -> Tensor | None:
    """Return which groups of 8 entries, 32 bytes, have one that a mask lets through; None where that saves nothing."""
    if leaf.off is None or leaf.off[0, 0].numel() % _GROUP:
        return None
    return leaf.off.view(*leaf.off.shape[:2], -1, _GROUP).all(3).logical_not_().view(torch.uint8)


def sgd_step(
    value: Tensor,
    gradient: Tensor,
    momentum: Tensor,
    dead: Tensor,
    rate: Tensor,
    rule: tuple[float, float, bool],
    *,
    active: Tensor | None = None,
    copy: Tensor | None = None,
) -> None:
    """Do what `pointwise.sgd_step` does, in one pass; values are ``[layers, members, entries]``.

    Args:
        active: see `active_groups`; what lies off the masks is zero and stays so.
        copy: gets the values, rounded to TF32.
    """
    layers, members, size = value.shape
    decay, inertia, nesterov = rule
    block, warps = _SGD
    _kernels().sgd_step[(layers * members, -(-size // block))](
        value, gradient, momentum, value if copy is None else copy, value if active is None else active,
        dead.view(-1).view(torch.uint8), rate.view(-1), members, size, decay, inertia,
        NESTEROV=nesterov, ROUNDED=copy is not None, MASKED=active is not None, GROUP=_GROUP, BLOCK=block,
        num_warps=warps, **FUSION,
    )  # fmt: skip


def _shape(grid: Grid) -> dict[str, int]:
    return {"HEIGHT": grid.height, "WIDE": grid.width, "SIDE": grid.kernel}


def _ahead_sizes(x: Tensor) -> tuple[int, int, int]:
    """Return rows, warps and stages for samples ``[members, rows, width]``."""
    roomy = x.device.type != "cuda" or _shared(x.device) >= _ROOMY
    sizes = _LINEAR if roomy else _LINEAR_BACKWARD
    return sizes if x.shape[0] * x.shape[1] >= _FULL * sizes[0] else _LINEAR_FEW


@cache
def _shared(device: torch.device) -> int:
    """Return how many bytes a program may have inside a multiprocessor."""
    return int(getattr(torch.cuda.get_device_properties(device), "shared_memory_per_block_optin"))  # noqa: B009 - untyped


def rounded(tensor: Tensor) -> Tensor:
    """Return float32 rounded to TF32, to nearest, where products are computed in that; else the tensor itself.

    Example:
        >>> from orthosparse.lab.training.devices import arithmetic
        >>> with arithmetic("tf32"):
        ...     rounded(torch.tensor([1.0, 1 + 2**-11, 1 + 2**-10 + 2**-12])).sub(1).mul(2**10).tolist()
        [0.0, 1.0, 1.0]
    """
    if not rounds(tensor):
        return tensor
    near = ((tensor.contiguous().view(torch.int32) + 0x1000) & -0x2000).view(torch.float32)
    return torch.where(tensor.isnan(), tensor, near)  # of some that are no numbers, the sum would make zeros


def rounds(tensor: Tensor) -> bool:
    """Return whether products would drop bits of this tensor."""
    return tensor.dtype == torch.float32 and precision() == "tf32"


def precision() -> str:
    """Return how float32 products are to be computed, as `devices.arithmetic` has set it."""
    return "tf32" if torch.backends.cuda.matmul.fp32_precision == "tf32" else "ieee"


def _kernels() -> Any:
    """Return the kernels: Triton is imported where they are used, and nowhere else."""
    from orthosparse.lab.training.stacked import chain_kernels

    return chain_kernels
