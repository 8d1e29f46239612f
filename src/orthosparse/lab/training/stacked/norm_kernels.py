"""GPU kernels for residual networks, in Triton: normalisations and activations, forward and backward.

Samples are ``[networks, rows, channels]``, contiguous. Channels and the sizes of blocks, in capitals, are powers of
two; rows may be any number. `maps` has the formulas of scale and shift, and of coefficients.

Sums over rows are written for each tile, by the kernel that computes the rows, and added up later in a fixed order:
results depend neither on the order in which programs run nor on the other networks.
"""

import triton
import triton.language as tl

from orthosparse.lab.training.stacked.chain_kernels import tanh
from orthosparse.lab.training.stacked.operations import SELU_ALPHA, SELU_SCALE

_SELU_ALPHA, _SELU_SCALE = tl.constexpr(SELU_ALPHA), tl.constexpr(SELU_SCALE)


@triton.jit
def _activated(z, KIND: tl.constexpr):
    """Return the activation of `z`; NaN stays NaN."""
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
def activation_grad(grad, y, KIND: tl.constexpr):
    """Return the gradient of the input of an activation, from the gradient of its output and the output `y` itself."""
    if KIND == "relu":
        grad = tl.where(y <= 0, 0.0, grad)
    elif KIND == "leaky_relu":
        grad = tl.where(y <= 0, 0.01 * grad, grad)
    elif KIND == "tanh":
        grad = grad * (1 - y * y)
    elif KIND == "hardtanh":
        grad = tl.where((y <= -1) | (y >= 1), 0.0, grad)
    elif KIND == "selu":
        grad = grad * tl.where(y <= 0, y + _SELU_SCALE * _SELU_ALPHA, _SELU_SCALE)
    return grad


@triton.jit
def store_sums(sums_ptr, value, other, tile, CHANNELS: tl.constexpr, PIXELS: tl.constexpr):
    """Write the sums of a tile, PIXELS to a row, and of its product with another one; masked rows are zero."""
    ptrs = sums_ptr + tile * 2 * CHANNELS + tl.arange(0, CHANNELS)
    tl.store(ptrs, tl.sum(tl.reshape(tl.sum(value, axis=0), (PIXELS, CHANNELS)), axis=0))
    tl.store(ptrs + CHANNELS, tl.sum(tl.reshape(tl.sum(value * other, axis=0), (PIXELS, CHANNELS)), axis=0))


@triton.jit
def _reduced_sums(sums_ptr, network, tiles, CHANNELS: tl.constexpr, BLOCK_TILES: tl.constexpr):
    """Return both sums of a network over all its tiles."""
    channel = tl.arange(0, CHANNELS)
    value_sum = tl.zeros((BLOCK_TILES, CHANNELS), tl.float32)
    product_sum = tl.zeros((BLOCK_TILES, CHANNELS), tl.float32)
    for start in tl.range(0, tiles, BLOCK_TILES):
        tile = start + tl.arange(0, BLOCK_TILES)
        ptrs = sums_ptr + (network * tiles + tile)[:, None] * (2 * CHANNELS) + channel[None, :]
        value_sum += tl.load(ptrs, mask=(tile < tiles)[:, None], other=0.0)
        product_sum += tl.load(ptrs + CHANNELS, mask=(tile < tiles)[:, None], other=0.0)
    return tl.sum(value_sum, axis=0), tl.sum(product_sum, axis=0)


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
    CHANNELS: tl.constexpr,
    BLOCK_TILES: tl.constexpr,
):
    """Write the mean and variance of every channel of a network, and the scale, shift and mean of its normalisation."""
    network, networks = tl.program_id(0), tl.num_programs(0)
    value_sum, square_sum = _reduced_sums(sums_ptr, network, tiles, CHANNELS, BLOCK_TILES)
    offsets = network * CHANNELS + tl.arange(0, CHANNELS)
    mean = tl.div_rn(value_sum, rows.to(tl.float32))  # rounded correctly: of a constant channel it is the constant
    var = square_sum / rows - mean * mean
    var = tl.where(var < 0, 0.0, var)  # NaN stays NaN
    var = tl.where(square_sum == float("inf"), square_sum, var)  # and infinity stays infinite, as in torch
    tl.store(mean_ptr + offsets, mean)
    tl.store(var_ptr + offsets, var)
    tl.store(scale_shift_ptr + offsets, tl.load(scale_ptr + offsets) / tl.sqrt(var + eps))
    tl.store(scale_shift_ptr + networks * CHANNELS + offsets, tl.load(shift_ptr + offsets))
    tl.store(scale_shift_ptr + 2 * networks * CHANNELS + offsets, mean)


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
    CHANNELS: tl.constexpr,
    BLOCK_TILES: tl.constexpr,
):
    """Write the gradients of a network's scale and shift, and the coefficients of its normalisation's backward pass."""
    network, networks = tl.program_id(0), tl.num_programs(0)
    grad_sum, product_sum = _reduced_sums(sums_ptr, network, tiles, CHANNELS, BLOCK_TILES)
    offsets = network * CHANNELS + tl.arange(0, CHANNELS)
    mean, inv_std = tl.load(mean_ptr + offsets), 1 / tl.sqrt(tl.load(var_ptr + offsets) + eps)
    scale_grad = (product_sum - mean * grad_sum) * inv_std
    a = tl.load(scale_ptr + offsets) * inv_std
    b = -a * inv_std * scale_grad / rows
    tl.store(scale_grad_ptr + offsets, scale_grad)
    tl.store(shift_grad_ptr + offsets, grad_sum)
    tl.store(coefficients_ptr + offsets, a)
    tl.store(coefficients_ptr + networks * CHANNELS + offsets, b)
    tl.store(coefficients_ptr + 2 * networks * CHANNELS + offsets, grad_sum / rows)
    tl.store(coefficients_ptr + 3 * networks * CHANNELS + offsets, mean)


@triton.jit
def _block_offsets(block, network, rows, CHANNELS: tl.constexpr, BLOCK_ROWS: tl.constexpr):
    """Return the offsets of a block of rows of a network, their mask, and the offsets of the network's channels."""
    row, channel = block * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS), tl.arange(0, CHANNELS)
    offsets = network * rows * CHANNELS + row[:, None] * CHANNELS + channel[None, :]
    return offsets, row[:, None] < rows, network * CHANNELS + channel


@triton.jit
def _normalised(z, scale_shift_ptr, channels, size):
    """Return rows less their mean, scaled and shifted; `size` is the number of channels of all networks."""
    scale, shift = tl.load(scale_shift_ptr + channels), tl.load(scale_shift_ptr + size + channels)
    return (z - tl.load(scale_shift_ptr + 2 * size + channels)[None, :]) * scale[None, :] + shift[None, :]


@triton.jit
def normalise(
    z_ptr,
    scale_shift_ptr,
    shortcut_ptr,
    shortcut_scale_shift_ptr,
    out_ptr,
    rows,
    SHORTCUT: tl.constexpr,
    NORMALISE_SHORTCUT: tl.constexpr,
    KIND: tl.constexpr,
    CHANNELS: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
):
    """Write the activation of a block of normalised rows of a network, plus a SHORTCUT, which may be normalised too."""
    block, network, networks = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.num_programs(1)
    offsets, mask, channels = _block_offsets(block, network, rows, CHANNELS, BLOCK_ROWS)
    z = tl.load(z_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    z = _normalised(z, scale_shift_ptr, channels, networks * CHANNELS)
    if SHORTCUT:
        shortcut = tl.load(shortcut_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
        if NORMALISE_SHORTCUT:
            shortcut = _normalised(shortcut, shortcut_scale_shift_ptr, channels, networks * CHANNELS)
        z += shortcut
    tl.store(out_ptr + offsets, _activated(z, KIND).to(out_ptr.dtype.element_ty), mask=mask)


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
    CHANNELS: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
):
    """Write the gradient of the input of an activation for a block of rows of a network (STORE), and its sums.

    Without STORE, only write the sums of the gradient at `grad_ptr`.
    """
    block, network, blocks = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.num_programs(0)
    offsets, mask, _ = _block_offsets(block, network, rows, CHANNELS, BLOCK_ROWS)
    grad = tl.load(grad_ptr + offsets, mask=mask, other=0.0)
    if STORE:
        y = tl.load(y_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
        grad = activation_grad(grad.to(tl.float32), y, KIND).to(out_ptr.dtype.element_ty)
        tl.store(out_ptr + offsets, grad, mask=mask)
    z = tl.load(z_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    store_sums(sums_ptr, grad.to(tl.float32), z, network * blocks + block, CHANNELS, 1)


@triton.jit
def norm_backward(
    grad_ptr,
    z_ptr,
    coefficients_ptr,
    out_ptr,
    rows,
    CHANNELS: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
):
    """Write the gradient of the input of a normalisation for a block of rows of a network."""
    block, network, networks = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.num_programs(1)
    offsets, mask, channels = _block_offsets(block, network, rows, CHANNELS, BLOCK_ROWS)
    grad = tl.load(grad_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    z = tl.load(z_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    a, b = tl.load(coefficients_ptr + channels), tl.load(coefficients_ptr + networks * CHANNELS + channels)
    c = tl.load(coefficients_ptr + 2 * networks * CHANNELS + channels)
    mean = tl.load(coefficients_ptr + 3 * networks * CHANNELS + channels)
    z_grad = (grad - c[None, :]) * a[None, :] + (z - mean[None, :]) * b[None, :]
    tl.store(out_ptr + offsets, z_grad.to(out_ptr.dtype.element_ty), mask=mask)
