"""Launches of our GPU kernels for residual networks, in the sizes that were fastest on an H200."""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from orthosparse.lab.models.stages import Grid
from orthosparse.lab.training.stacked.launches import FUSION, precision
from orthosparse.lab.training.stacked.maps import Below
from orthosparse.lab.training.stacked.slab import NormSlab
from orthosparse.lab.training.stacked.tiles import Tiling, tiling_backward, tiling_forward


class Sizes(NamedTuple):
    """How a convolution is shared out.

    Attributes:
        patch: outputs that are computed together, down and across.
        rows: patches of a program.
        inner: numbers of a window in one product.
        stages: of the pipeline.
    """

    patch: tuple[int, int]
    rows: int
    inner: int
    warps: int
    stages: int


# By channels of the outputs, and where these are computed one by one; as measured fastest on an H200.
_CONVOLVE = {
    16: Sizes((2, 2), 128, 64, 4, 2),
    32: Sizes((1, 1), 256, 32, 4, 3),
}
_CONVOLVE_ALONE = Sizes((1, 1), 128, 64, 4, 3)
_CONVOLVE_BACKWARD = Sizes((2, 2), 64, 64, 4, 3)  # strided
_WEIGHT_GRAD = {
    16: Sizes((2, 2), 64, 128, 4, 3),
    32: Sizes((2, 2), 64, 128, 4, 3),
    64: Sizes((1, 1), 64, 128, 4, 3),
}
_WEIGHT_GRAD_ALONE = Sizes((1, 1), 64, 64, 4, 3)
_PROGRAMS = 528  # that gradients of weights are shared out to: four for every multiprocessor of an H200
_ENTRIES = 4096  # of a program that takes entries one by one
_TILES = 128  # whose sums are read at once
_WARPS = 4


def plan_forward(grid: Grid, width: int) -> tuple[Tiling, Sizes]:
    """Return how a convolution is computed that gives so many channels."""
    sizes = _CONVOLVE.get(width, _CONVOLVE_ALONE) if _in_patches(grid) else _CONVOLVE_ALONE
    return tiling_forward(grid, sizes.patch), sizes


def plan_backward(grid: Grid, width: int) -> tuple[Tiling, Sizes]:
    """Return how a gradient is taken back through a convolution that saw so many channels; see `tiling_backward`."""
    if grid.stride == 1:
        return plan_forward(grid, width)
    return tiling_backward(grid, _CONVOLVE_BACKWARD.patch), _CONVOLVE_BACKWARD


def plan_weight_grad(grid: Grid, width: int) -> tuple[Tiling, Sizes]:
    """Return how the gradients of the weights of a convolution are computed that gives so many channels."""
    sizes = _WEIGHT_GRAD.get(width, _WEIGHT_GRAD_ALONE) if _in_patches(grid) else _WEIGHT_GRAD_ALONE
    return tiling_forward(grid, sizes.patch), sizes


def _in_patches(grid: Grid) -> bool:
    """Return whether outputs are computed in patches: strided ones and those of odd maps are not."""
    return grid.stride == 1 and grid.kernel > 1 and grid.height % 2 == 0 and grid.width % 2 == 0


def convolve(
    x: Tensor, kernel: Tensor, shared: tuple[Tiling, Sizes], width: int, *, counted: bool
) -> tuple[Tensor, Tensor | None]:
    """Return the convolution of samples by a kernel that is laid out, and its sums if `counted`, else None."""
    return _convolve(x, kernel, shared, width, (x, x, x), SUMS=counted, BACKWARD=False, ADD=False, KIND="linear")


def convolve_backward(
    grad: Tensor, kernel: Tensor, shared: tuple[Tiling, Sizes], width: int, add: Tensor | None, below: Below | None
) -> tuple[Tensor, Tensor | None]:
    """Return the convolution of a gradient, and its sums if there is anything after it; see `Maps`."""
    given = (grad if add is None else add, *((grad, grad) if below is None else below[:2]))
    kind = "linear" if below is None else below.activation
    return _convolve(
        grad, kernel, shared, width, given, SUMS=below is not None, BACKWARD=True, ADD=add is not None, KIND=kind
    )


def _convolve(
    x: Tensor, kernel: Tensor, shared: tuple[Tiling, Sizes], width: int, given: tuple[Tensor, ...], **constants: Any
) -> tuple[Tensor, Tensor | None]:
    (members, seen, inputs), (view, (_, tile, inner, warps, stages)) = x.shape, shared
    images = seen // math.prod(view.seen)
    rows, patches = images * math.prod(view.given), images * view.patches
    tiles = -(-patches // tile)
    out = x.new_empty(members, rows, width)
    sums = x.new_empty(members, tiles, 2, width, dtype=torch.float32) if constants["SUMS"] else None
    _maps().convolve[(tiles, members)](
        x, kernel, *given, out, out if sums is None else sums, patches,
        **constants, **view.constants(), INPUTS=inputs, OUTPUTS=width,
        ROWS=tile, INNER=min(inner, _power(kernel.shape[1])), PRECISION=precision(), STAGES=stages,
        num_warps=warps, **FUSION,
    )  # fmt: skip
    return out, sums


def weight_grad(grad: Tensor, x: Tensor, out: Tensor, shared: tuple[Tiling, Sizes]) -> None:
    """Write the products of shares of the patches of a gradient with what they saw, ``[members, shares, ...]``."""
    view, (patch, tile, inner, warps, stages) = shared
    (members, shares, _, window), patches = out.shape, grad.shape[1] // math.prod(patch)
    inner = min(inner, _power(window))
    _maps().weight_grad[(-(-window // inner), shares, members)](
        grad, x, out, patches, -(-patches // (shares * tile)) * tile,
        **view.constants(), INPUTS=x.shape[2], OUTPUTS=grad.shape[2],
        ROWS=tile, INNER=inner, PRECISION=precision(), STAGES=stages, num_warps=warps, **FUSION,
    )  # fmt: skip


def products_shape(grad: Tensor, x: Tensor, shared: tuple[Tiling, Sizes]) -> tuple[int, int, int, int]:
    """Return the shape of what `weight_grad` writes: as many shares as keep all multiprocessors busy."""
    view, (patch, tile, inner, _, _) = shared
    pixels, window = math.prod(patch), math.prod(view.window) * x.shape[2]
    patches, parts = grad.shape[1] // pixels, -(-window // min(inner, _power(window)))
    most = max(1, min(-(-_PROGRAMS // (parts * len(x))), patches // (2 * tile)))
    share = -(-patches // (most * tile)) * tile
    return len(x), -(-patches // share), pixels * grad.shape[2], window


def scale_shift(slab: NormSlab, layer: int, sums: Tensor, rows: int) -> Tensor:
    """Return what a normalisation does to a batch of these sums, and write its statistics."""
    scale, shift = slab.scale.value[layer], slab.shift.value[layer]
    found = scale.new_empty(3, *scale.shape)
    _norms().scale_shift[(len(sums),)](
        sums, scale, shift, slab.batch_mean[layer], slab.batch_var[layer], found, sums.shape[1], rows,
        slab.norms.eps, WIDTH=scale.shape[1], BLOCK=_TILES, num_warps=_WARPS, **FUSION,
    )  # fmt: skip
    return found


def norm_grads(slab: NormSlab, layer: int, sums: Tensor, rows: int) -> Tensor:
    """Return what a normalisation does to gradients of these sums, and write those of its scale and shift."""
    scale = slab.scale.value[layer]
    found = scale.new_empty(4, *scale.shape)
    _norms().norm_grads[(len(sums),)](
        sums, scale, slab.batch_mean[layer], slab.batch_var[layer], slab.scale.gradient[layer],
        slab.shift.gradient[layer], found, sums.shape[1], rows, slab.norms.eps,
        WIDTH=scale.shape[1], BLOCK=_TILES, num_warps=_WARPS, **FUSION,
    )  # fmt: skip
    return found


def normalise(
    z: Tensor, scale_shift: Tensor, activation: str, other: Tensor | None = None, by: Tensor | None = None
) -> Tensor:
    """Return the activation of the normalised `z`, plus `other`, which may want to be normalised too."""
    out, (tile, grid) = torch.empty_like(z), _tiles(z)
    _norms().normalise[grid](
        z, scale_shift, z if other is None else other, scale_shift if by is None else by, out, z.shape[1],
        OTHER=other is not None, BY=by is not None, KIND=activation, WIDTH=z.shape[2], ROWS=tile,
        num_warps=_WARPS, **FUSION,
    )  # fmt: skip
    return out


def activation_backward(grad: Tensor, below: Below, out: Tensor | None) -> Tensor:
    """Return the sums of a gradient before an activation, and write it to `out`; None: it is there already."""
    (tile, grid), (members, rows, width) = _tiles(grad), grad.shape
    sums = grad.new_empty(members, grid[0], 2, width, dtype=torch.float32)
    _norms().activation_backward[grid](
        grad, below.y, below.z, grad if out is None else out, sums, rows,
        KIND=below.activation, STORE=out is not None, WIDTH=width, ROWS=tile, num_warps=_WARPS, **FUSION,
    )  # fmt: skip
    return sums


def norm_backward(v: Tensor, z: Tensor, coefficients: Tensor) -> Tensor:
    """Return the gradient before a normalisation, of that after it."""
    out, (tile, grid) = torch.empty_like(v), _tiles(v)
    _norms().norm_backward[grid](
        v, z, coefficients, out, v.shape[1], WIDTH=v.shape[2], ROWS=tile, num_warps=_WARPS, **FUSION
    )
    return out


def _tiles(x: Tensor) -> tuple[int, tuple[int, int]]:
    """Return the rows of a program that takes entries one by one, and the programs."""
    members, rows, width = x.shape
    tile = _ENTRIES // width
    return tile, (-(-rows // tile), members)


def _power(size: int) -> int:
    """Return the least power of two that is not below `size`."""
    return 1 << (size - 1).bit_length()


def _maps() -> Any:
    """Return the kernels of convolutions: Triton is imported where they are used, and nowhere else."""
    from orthosparse.lab.training.stacked import map_kernels

    return map_kernels


def _norms() -> Any:
    """Return the kernels of normalisations, in the same way."""
    from orthosparse.lab.training.stacked import norm_kernels

    return norm_kernels
