"""Launches of our Triton kernels for residual networks, with the block sizes that were fastest on an H200."""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from orthosparse.lab.models.stages import Grid
from orthosparse.lab.training.stacked.launches import FUSION, precision
from orthosparse.lab.training.stacked.maps import PreviousLayer
from orthosparse.lab.training.stacked.patches import Tiling, tiling_backward, tiling_forward
from orthosparse.lab.training.stacked.slab import NormSlab


class Sizes(NamedTuple):
    """How a convolution is shared out.

    Attributes:
        patch: outputs that are computed together, (height, width).
        patches: of a program.
        window: numbers of a window in one product.
        stages: of the pipeline.
    """

    patch: tuple[int, int]
    patches: int
    window: int
    warps: int
    stages: int


Plan = tuple[Tiling, Sizes]

# By the channels of the outputs; the sizes named SINGLE compute patches of one output. Measured as fastest on an H200.
_CONVOLVE = {
    16: Sizes((2, 2), 128, 64, 4, 2),
    32: Sizes((1, 1), 256, 32, 4, 3),
}
_CONVOLVE_SINGLE = Sizes((1, 1), 128, 64, 4, 3)
_CONVOLVE_BACKWARD = Sizes((2, 2), 64, 64, 4, 3)  # strided
_WEIGHT_GRAD = {
    16: Sizes((2, 2), 64, 128, 4, 3),
    32: Sizes((2, 2), 64, 128, 4, 3),
    64: Sizes((1, 1), 64, 128, 4, 3),
}
_WEIGHT_GRAD_SINGLE = Sizes((1, 1), 64, 64, 4, 3)
_PROGRAMS = 528  # that share gradients of weights: four for each multiprocessor of an H200
_ENTRIES = 4096  # of a program of the elementwise kernels
_TILES = 128  # whose sums are loaded at once
_WARPS = 4


def plan_forward(grid: Grid, outputs: int) -> Plan:
    """Return how a convolution with so many output channels is computed."""
    sizes = _CONVOLVE.get(outputs, _CONVOLVE_SINGLE) if _has_patches(grid) else _CONVOLVE_SINGLE
    return tiling_forward(grid, sizes.patch), sizes


def plan_backward(grid: Grid, inputs: int) -> Plan:
    """Return how the gradient of the input of a convolution with so many input channels is computed."""
    if grid.stride == 1:
        return plan_forward(grid, inputs)
    return tiling_backward(grid, _CONVOLVE_BACKWARD.patch), _CONVOLVE_BACKWARD


def plan_weight_grad(grid: Grid, outputs: int) -> Plan:
    """Return how the gradient of the weights of a convolution with so many output channels is computed."""
    sizes = _WEIGHT_GRAD.get(outputs, _WEIGHT_GRAD_SINGLE) if _has_patches(grid) else _WEIGHT_GRAD_SINGLE
    return tiling_forward(grid, sizes.patch), sizes


def _has_patches(grid: Grid) -> bool:
    """Return whether patches may have several outputs: not with a stride, nor on odd maps."""
    return grid.stride == 1 and grid.kernel > 1 and grid.height % 2 == 0 and grid.width % 2 == 0


def convolve(x: Tensor, kernel: Tensor, plan: Plan, outputs: int, *, with_sums: bool) -> tuple[Tensor, Tensor | None]:
    """Return the convolution of samples by a kernel that is laid out, and its sums if `with_sums`, else None."""
    constants = {"SUMS": with_sums, "BACKWARD": False, "SHORTCUT": False, "KIND": "linear"}
    return _convolve(x, kernel, plan, outputs, (x, x, x), **constants)


def convolve_backward(
    grad: Tensor,
    kernel: Tensor,
    plan: Plan,
    inputs: int,
    shortcut_grad: Tensor | None,
    previous: PreviousLayer | None,
) -> tuple[Tensor, Tensor | None]:
    """Return the gradient of the input of a convolution, or with `previous` that before its activation and its sums."""
    y, z = (grad, grad) if previous is None else previous[:2]
    kind = "linear" if previous is None else previous.activation
    constants = {"SUMS": previous is not None, "BACKWARD": True, "SHORTCUT": shortcut_grad is not None, "KIND": kind}
    operands = (grad if shortcut_grad is None else shortcut_grad, y, z)
    return _convolve(grad, kernel, plan, inputs, operands, **constants)


def _convolve(
    x: Tensor, kernel: Tensor, plan: Plan, outputs: int, operands: tuple[Tensor, Tensor, Tensor], **constants: Any
) -> tuple[Tensor, Tensor | None]:
    (networks, in_rows, inputs), (tiling, sizes) = x.shape, plan
    images = in_rows // math.prod(tiling.in_size)
    rows, patches = images * math.prod(tiling.out_size), images * tiling.patches
    blocks = -(-patches // sizes.patches)
    out = x.new_empty(networks, rows, outputs)
    sums = x.new_empty(networks, blocks, 2, outputs, dtype=torch.float32) if constants["SUMS"] else None
    _map_kernels().convolve[(blocks, networks)](
        x, kernel, *operands, out, out if sums is None else sums, patches,
        **constants, **tiling.constants(), INPUTS=inputs, OUTPUTS=outputs, BLOCK_PATCHES=sizes.patches,
        BLOCK_WINDOW=min(sizes.window, _power_of_two(kernel.shape[1])), PRECISION=precision(), STAGES=sizes.stages,
        num_warps=sizes.warps, **FUSION,
    )  # fmt: skip
    return out, sums


def weight_grad(grad: Tensor, x: Tensor, out: Tensor, plan: Plan) -> None:
    """Write the products of shares of the patches of a gradient with their windows, ``[networks, shares, ...]``."""
    tiling, sizes = plan
    (networks, shares, _, window), patches = out.shape, grad.shape[1] // math.prod(sizes.patch)
    block_window = min(sizes.window, _power_of_two(window))
    patches_per_share = -(-patches // (shares * sizes.patches)) * sizes.patches
    _map_kernels().weight_grad[(-(-window // block_window), shares, networks)](
        grad, x, out, patches, patches_per_share,
        **tiling.constants(), INPUTS=x.shape[2], OUTPUTS=grad.shape[2], BLOCK_PATCHES=sizes.patches,
        BLOCK_WINDOW=block_window, PRECISION=precision(), STAGES=sizes.stages, num_warps=sizes.warps, **FUSION,
    )  # fmt: skip


def weight_grads_shape(grad: Tensor, x: Tensor, plan: Plan) -> tuple[int, int, int, int]:
    """Return the shape of what `weight_grad` writes: as many shares as keep all multiprocessors busy."""
    tiling, sizes = plan
    outputs, window = math.prod(sizes.patch), math.prod(tiling.window) * x.shape[2]
    patches, parts = grad.shape[1] // outputs, -(-window // min(sizes.window, _power_of_two(window)))
    max_shares = max(1, min(-(-_PROGRAMS // (parts * len(x))), patches // (2 * sizes.patches)))
    patches_per_share = -(-patches // (max_shares * sizes.patches)) * sizes.patches
    return len(x), -(-patches // patches_per_share), outputs * grad.shape[2], window


def scale_shift(slab: NormSlab, layer: int, sums: Tensor, rows: int) -> Tensor:
    """Return the scale, shift and mean of a normalisation of a batch with these sums, and write its statistics."""
    scale, shift = slab.scale.value[layer], slab.shift.value[layer]
    out = scale.new_empty(3, *scale.shape)
    _norm_kernels().scale_shift[(len(sums),)](
        sums, scale, shift, slab.batch_mean[layer], slab.batch_var[layer], out, sums.shape[1], rows,
        slab.norms.eps, CHANNELS=scale.shape[1], BLOCK_TILES=_TILES, num_warps=_WARPS, **FUSION,
    )  # fmt: skip
    return out


def norm_grads(slab: NormSlab, layer: int, sums: Tensor, rows: int) -> Tensor:
    """Return the coefficients of the backward pass of a normalisation; write the gradients of its scale and shift."""
    scale = slab.scale.value[layer]
    out = scale.new_empty(4, *scale.shape)
    _norm_kernels().norm_grads[(len(sums),)](
        sums, scale, slab.batch_mean[layer], slab.batch_var[layer], slab.scale.gradient[layer],
        slab.shift.gradient[layer], out, sums.shape[1], rows, slab.norms.eps,
        CHANNELS=scale.shape[1], BLOCK_TILES=_TILES, num_warps=_WARPS, **FUSION,
    )  # fmt: skip
    return out


def normalise(
    z: Tensor,
    scale_shift: Tensor,
    activation: str,
    shortcut: Tensor | None = None,
    shortcut_scale_shift: Tensor | None = None,
) -> Tensor:
    """Return the activation of the normalised `z` plus a shortcut, normalised by its own scale and shift if any."""
    out, (block, grid) = torch.empty_like(z), _grid(z)
    _norm_kernels().normalise[grid](
        z, scale_shift, z if shortcut is None else shortcut,
        scale_shift if shortcut_scale_shift is None else shortcut_scale_shift, out, z.shape[1],
        SHORTCUT=shortcut is not None, NORMALISE_SHORTCUT=shortcut_scale_shift is not None, KIND=activation,
        CHANNELS=z.shape[2], BLOCK_ROWS=block, num_warps=_WARPS, **FUSION,
    )  # fmt: skip
    return out


def activation_backward(grad: Tensor, previous: PreviousLayer, out: Tensor | None) -> Tensor:
    """Write the gradient before an activation to `out`, and return its sums; None: `grad` is that gradient already."""
    (block, grid), (networks, rows, channels) = _grid(grad), grad.shape
    sums = grad.new_empty(networks, grid[0], 2, channels, dtype=torch.float32)
    _norm_kernels().activation_backward[grid](
        grad, previous.y, previous.z, grad if out is None else out, sums, rows,
        KIND=previous.activation, STORE=out is not None, CHANNELS=channels, BLOCK_ROWS=block, num_warps=_WARPS,
        **FUSION,
    )  # fmt: skip
    return sums


def norm_backward(grad: Tensor, z: Tensor, coefficients: Tensor) -> Tensor:
    """Return the gradient of the input `z` of a normalisation, from the gradient of its output."""
    out, (block, grid) = torch.empty_like(grad), _grid(grad)
    _norm_kernels().norm_backward[grid](
        grad, z, coefficients, out, grad.shape[1],
        CHANNELS=grad.shape[2], BLOCK_ROWS=block, num_warps=_WARPS, **FUSION,
    )  # fmt: skip
    return out


def _grid(x: Tensor) -> tuple[int, tuple[int, int]]:
    """Return the rows of a program of the elementwise kernels, and the grid of programs."""
    networks, rows, channels = x.shape
    block = _ENTRIES // channels
    return block, (-(-rows // block), networks)


def _power_of_two(size: int) -> int:
    """Return the least power of two that is not below `size`."""
    return 1 << (size - 1).bit_length()


def _map_kernels() -> Any:
    """Return the kernels of convolutions; Triton is imported only where they are used."""
    from orthosparse.lab.training.stacked import map_kernels

    return map_kernels


def _norm_kernels() -> Any:
    """Return the kernels of normalisations, in the same way."""
    from orthosparse.lab.training.stacked import norm_kernels

    return norm_kernels
