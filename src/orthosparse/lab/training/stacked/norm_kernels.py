"""GPU kernels for residual networks, in Triton: normalisations and activations, there and back.

Samples are ``[members, rows, channels]``, contiguous; channels and the sizes of blocks, in capitals, are powers of two,
rows any number. See `maps` for lines and planes.

Sums over rows are taken where the numbers are made, tile by tile, and added up afterwards in one fixed order: nothing
depends on the order of work, nor on the other members.
"""

import triton
import triton.language as tl

from orthosparse.lab.training.stacked.chain_kernels import tanh
from orthosparse.lab.training.stacked.operations import SELU_ALPHA, SELU_SCALE

_SELU_ALPHA, _SELU_SCALE = tl.constexpr(SELU_ALPHA), tl.constexpr(SELU_SCALE)


@triton.jit
def _activated(z, KIND: tl.constexpr):
    """Return the activation of `z`; what is not a number stays so."""
    if KIND == "relu":
        z = tl.where(z < 0, 0.0, z)
    elif KIND == "leaky_relu":
        z = tl.where(z < 0, 0.01 * z, z)
    elif KIND == "tanh":
        z = tanh(z)
    elif KIND == "hardtanh":
        z = tl.where(z > 1, 1.0, tl.where(z < -1, -1.0, z))
    elif KIND == "selu":
        z = _SELU_SCALE * tl.where(z < 0, _SELU_ALPHA * (tl.exp(tl.minimum(z, 0.0)) - 1), z)
    return z


@triton.jit
def activation_grad(v, y, KIND: tl.constexpr):
    """Return a gradient before an activation, which gave `y`."""
    if KIND == "relu":
        v = tl.where(y <= 0, 0.0, v)
    elif KIND == "leaky_relu":
        v = tl.where(y <= 0, 0.01 * v, v)
    elif KIND == "tanh":
        v = v * (1 - y * y)
    elif KIND == "hardtanh":
        v = tl.where((y <= -1) | (y >= 1), 0.0, v)
    elif KIND == "selu":
        v = v * tl.where(y <= 0, y + _SELU_SCALE * _SELU_ALPHA, _SELU_SCALE)
    return v


@triton.jit
def sum_up(sums_ptr, v, z, which, WIDTH: tl.constexpr, PIXELS: tl.constexpr):
    """Write the sums of a tile of patches, and of its product with another; rows that are not there are zero."""
    place = sums_ptr + which * 2 * WIDTH + tl.arange(0, WIDTH)
    tl.store(place, tl.sum(tl.reshape(tl.sum(v, axis=0), (PIXELS, WIDTH)), axis=0))
    tl.store(place + WIDTH, tl.sum(tl.reshape(tl.sum(v * z, axis=0), (PIXELS, WIDTH)), axis=0))


@triton.jit
def _gathered(sums_ptr, member, tiles, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """Return both sums of a member over all its tiles."""
    column = tl.arange(0, WIDTH)
    one, two = tl.zeros((BLOCK, WIDTH), tl.float32), tl.zeros((BLOCK, WIDTH), tl.float32)
    for start in tl.range(0, tiles, BLOCK):
        tile = start + tl.arange(0, BLOCK)
        place = sums_ptr + (member * tiles + tile)[:, None] * (2 * WIDTH) + column[None, :]
        one += tl.load(place, mask=(tile < tiles)[:, None], other=0.0)
        two += tl.load(place + WIDTH, mask=(tile < tiles)[:, None], other=0.0)
    return tl.sum(one, axis=0), tl.sum(two, axis=0)


@triton.jit
def scale_shift(
    sums_ptr,
    scale_ptr,
    shift_ptr,
    mean_ptr,
    var_ptr,
    scale_shift_ptr,
    tiles,
    rows,
    eps,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write the mean and the variance of every channel of a member, and what the normalisation does to it."""
    member, members = tl.program_id(0), tl.num_programs(0)
    one, two = _gathered(sums_ptr, member, tiles, WIDTH, BLOCK)
    place = member * WIDTH + tl.arange(0, WIDTH)
    mean = tl.div_rn(one, rows.to(tl.float32))  # correctly rounded: of a constant channel it is the constant
    var = two / rows - mean * mean
    var = tl.where(var < 0, 0.0, var)  # what is not a number stays so
    var = tl.where(two == float("inf"), two, var)  # and what is infinite, as torch has it
    tl.store(mean_ptr + place, mean)
    tl.store(var_ptr + place, var)
    tl.store(scale_shift_ptr + place, tl.load(scale_ptr + place) / tl.sqrt(var + eps))
    tl.store(scale_shift_ptr + members * WIDTH + place, tl.load(shift_ptr + place))
    tl.store(scale_shift_ptr + 2 * members * WIDTH + place, mean)


@triton.jit
def norm_grads(
    sums_ptr,
    scale_ptr,
    mean_ptr,
    var_ptr,
    scale_grad_ptr,
    shift_grad_ptr,
    coefficients_ptr,
    tiles,
    rows,
    eps,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write the gradients of a member's scale and shift, and what the normalisation does to gradients."""
    member, members = tl.program_id(0), tl.num_programs(0)
    one, two = _gathered(sums_ptr, member, tiles, WIDTH, BLOCK)
    place = member * WIDTH + tl.arange(0, WIDTH)
    mean, near = tl.load(mean_ptr + place), 1 / tl.sqrt(tl.load(var_ptr + place) + eps)
    scale_grad = (two - mean * one) * near
    slope = tl.load(scale_ptr + place) * near
    lean = -slope * near * scale_grad / rows
    tl.store(scale_grad_ptr + place, scale_grad)
    tl.store(shift_grad_ptr + place, one)
    tl.store(coefficients_ptr + place, slope)
    tl.store(coefficients_ptr + members * WIDTH + place, lean)
    tl.store(coefficients_ptr + 2 * members * WIDTH + place, one / rows)
    tl.store(coefficients_ptr + 3 * members * WIDTH + place, mean)


@triton.jit
def _scaled(z, scale_shift_ptr, own, size):
    """Return rows less their mean, scaled and shifted."""
    scale, shift = tl.load(scale_shift_ptr + own), tl.load(scale_shift_ptr + size + own)
    return (z - tl.load(scale_shift_ptr + 2 * size + own)[None, :]) * scale[None, :] + shift[None, :]


@triton.jit
def normalise(
    z_ptr,
    scale_shift_ptr,
    other_ptr,
    by_ptr,
    out_ptr,
    rows,
    OTHER: tl.constexpr,
    BY: tl.constexpr,
    KIND: tl.constexpr,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Write the activation of some normalised rows of a member, plus another's (OTHER), normalised too (BY)."""
    tile, member, members = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.num_programs(1)
    row, column = tile * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    place, live = member * rows * WIDTH + row[:, None] * WIDTH + column[None, :], row[:, None] < rows
    own = member * WIDTH + column
    z = tl.load(z_ptr + place, mask=live, other=0.0).to(tl.float32)
    z = _scaled(z, scale_shift_ptr, own, members * WIDTH)
    if OTHER:
        other = tl.load(other_ptr + place, mask=live, other=0.0).to(tl.float32)
        if BY:
            other = _scaled(other, by_ptr, own, members * WIDTH)
        z += other
    tl.store(out_ptr + place, _activated(z, KIND).to(out_ptr.dtype.element_ty), mask=live)


@triton.jit
def activation_backward(
    grad_ptr,
    y_ptr,
    z_ptr,
    out_ptr,
    sums_ptr,
    rows,
    KIND: tl.constexpr,
    STORE: tl.constexpr,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Take the gradient of some rows of a member back through an activation, and write (STORE) and sum up that."""
    tile, member, tiles = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.num_programs(0)
    row, column = tile * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    place, live = member * rows * WIDTH + row[:, None] * WIDTH + column[None, :], row[:, None] < rows
    v = tl.load(grad_ptr + place, mask=live, other=0.0)
    if STORE:
        y = tl.load(y_ptr + place, mask=live, other=0.0).to(tl.float32)
        v = activation_grad(v.to(tl.float32), y, KIND).to(out_ptr.dtype.element_ty)
        tl.store(out_ptr + place, v, mask=live)
    z = tl.load(z_ptr + place, mask=live, other=0.0).to(tl.float32)
    sum_up(sums_ptr, v.to(tl.float32), z, member * tiles + tile, WIDTH, 1)


@triton.jit
def norm_backward(
    v_ptr,
    z_ptr,
    coefficients_ptr,
    out_ptr,
    rows,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Write the gradient of some rows of a member before a normalisation."""
    tile, member, members = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.num_programs(1)
    row, column = tile * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    place, live = member * rows * WIDTH + row[:, None] * WIDTH + column[None, :], row[:, None] < rows
    own = member * WIDTH + column
    v = tl.load(v_ptr + place, mask=live, other=0.0).to(tl.float32)
    z = tl.load(z_ptr + place, mask=live, other=0.0).to(tl.float32)
    slope, lean = tl.load(coefficients_ptr + own), tl.load(coefficients_ptr + members * WIDTH + own)
    mean_grad = tl.load(coefficients_ptr + 2 * members * WIDTH + own)
    mean = tl.load(coefficients_ptr + 3 * members * WIDTH + own)
    found = (v - mean_grad[None, :]) * slope[None, :] + (z - mean[None, :]) * lean[None, :]
    tl.store(out_ptr + place, found.to(out_ptr.dtype.element_ty), mask=live)
