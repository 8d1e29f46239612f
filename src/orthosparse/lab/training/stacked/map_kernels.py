"""GPU kernels for residual networks, in Triton: convolutions with what comes after them, and gradients of weights.

Samples are ``[networks, rows, channels]``, a row for each pixel of each image; weights ``[networks, out, taps * in]``.
All are contiguous. Channels and the sizes of blocks, in capitals, are powers of two; rows may be any number.
Convolutions pad with zeros.

A convolution is computed in patches of PATCH_HEIGHT times PATCH_WIDTH outputs (see `patches`). The inputs of a patch
are a window that is a little larger, some contiguous runs of numbers: loaded once for all outputs of the patch, not
once for each tap. The kernel is laid out for that, ``[networks, numbers of a window, numbers of a patch]``, with zeros
where an output does not depend on a pixel. A product reads BLOCK_WINDOW numbers of the window at a time, whatever their
taps and channels.
"""

import triton
import triton.language as tl

from orthosparse.lab.training.stacked.chain_kernels import rounded
from orthosparse.lab.training.stacked.norm_kernels import activation_grad, store_sums


@triton.jit
def _patch_index(patch, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Return the image of patches, and their row and column in it; an image has ROWS times COLUMNS patches."""
    return patch // (COLUMNS * ROWS), (patch // COLUMNS) % ROWS, patch % COLUMNS


@triton.jit
def _window_offsets(
    patch,
    patch_mask,
    number,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    OUT_HEIGHT: tl.constexpr,
    OUT_WIDTH: tl.constexpr,
    PATCH_HEIGHT: tl.constexpr,
    PATCH_WIDTH: tl.constexpr,
    STEP_HEIGHT: tl.constexpr,
    STEP_WIDTH: tl.constexpr,
    PADDING: tl.constexpr,
    WINDOW_HEIGHT: tl.constexpr,
    WINDOW_WIDTH: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """Return the offsets of some numbers of the windows of patches, [patches, numbers], and their mask."""
    run: tl.constexpr = WINDOW_WIDTH * CHANNELS
    image, patch_row, patch_column = _patch_index(patch, OUT_HEIGHT // PATCH_HEIGHT, OUT_WIDTH // PATCH_WIDTH)
    top, left = patch_row * STEP_HEIGHT - PADDING, patch_column * STEP_WIDTH - PADDING
    down, right = number // run, number % run
    start = ((image * HEIGHT + top) * WIDTH + left) * CHANNELS
    offsets = start[:, None] + (down * (WIDTH * CHANNELS) + right)[None, :]
    row, column = top[:, None] + down[None, :], left[:, None] + (right // CHANNELS)[None, :]
    mask = (row >= 0) & (row < HEIGHT) & (column >= 0) & (column < WIDTH)
    mask = mask & patch_mask[:, None] & (number < WINDOW_HEIGHT * run)[None, :]
    # The channels of a pixel are contiguous and masked as a whole, which the compiler does not see in odd windows.
    offsets = tl.max_contiguous(tl.multiple_of(offsets, (1, CHANNELS)), (1, CHANNELS))
    return offsets, tl.max_constancy(mask, (1, CHANNELS))


@triton.jit
def _patch_offsets(
    patch,
    column,
    OUT_HEIGHT: tl.constexpr,
    OUT_WIDTH: tl.constexpr,
    CHANNELS: tl.constexpr,
    PATCH_HEIGHT: tl.constexpr,
    PATCH_WIDTH: tl.constexpr,
):
    """Return the offset of the first number of each patch, and what the columns of a patch add to it."""
    image, patch_row, patch_column = _patch_index(patch, OUT_HEIGHT // PATCH_HEIGHT, OUT_WIDTH // PATCH_WIDTH)
    start = ((image * OUT_HEIGHT + patch_row * PATCH_HEIGHT) * OUT_WIDTH + patch_column * PATCH_WIDTH) * CHANNELS
    run: tl.constexpr = PATCH_WIDTH * CHANNELS
    return start, (column // run) * (OUT_WIDTH * CHANNELS) + column % run


@triton.jit
def convolve(
    x_ptr,
    w_ptr,
    shortcut_grad_ptr,
    y_ptr,
    z_ptr,
    out_ptr,
    sums_ptr,
    patches,
    BACKWARD: tl.constexpr,
    SHORTCUT: tl.constexpr,
    KIND: tl.constexpr,
    SUMS: tl.constexpr,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    OUT_HEIGHT: tl.constexpr,
    OUT_WIDTH: tl.constexpr,
    PATCH_HEIGHT: tl.constexpr,
    PATCH_WIDTH: tl.constexpr,
    STEP_HEIGHT: tl.constexpr,
    STEP_WIDTH: tl.constexpr,
    PADDING: tl.constexpr,
    WINDOW_HEIGHT: tl.constexpr,
    WINDOW_WIDTH: tl.constexpr,
    INPUTS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    BLOCK_PATCHES: tl.constexpr,
    BLOCK_WINDOW: tl.constexpr,
    PRECISION: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Write a block of patches of the convolution of one network, and the sums of them and of their squares (SUMS).

    In the BACKWARD pass, which is the convolution of a gradient, the gradient of a SHORTCUT may be added. With SUMS the
    result is then the gradient before the activation (KIND) whose output is at `y_ptr`; its sums are those of it and of
    its product with `z_ptr`.
    """
    block, network, blocks = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.num_programs(0)
    size: tl.constexpr = PATCH_HEIGHT * PATCH_WIDTH * OUTPUTS
    window: tl.constexpr = WINDOW_HEIGHT * WINDOW_WIDTH * INPUTS
    patch, column = block * BLOCK_PATCHES + tl.arange(0, BLOCK_PATCHES), tl.arange(0, size)
    mask = patch < patches
    images = patches // ((OUT_HEIGHT // PATCH_HEIGHT) * (OUT_WIDTH // PATCH_WIDTH))
    x_ptr += network * images * (HEIGHT * WIDTH * INPUTS)
    w_ptr += network * (window * size)
    accumulator = tl.zeros((BLOCK_PATCHES, size), tl.float32)
    for first in tl.range(0, window, BLOCK_WINDOW, num_stages=STAGES):
        number = first + tl.arange(0, BLOCK_WINDOW)
        offsets, window_mask = _window_offsets(
            patch, mask, number, HEIGHT, WIDTH, OUT_HEIGHT, OUT_WIDTH, PATCH_HEIGHT, PATCH_WIDTH, STEP_HEIGHT,
            STEP_WIDTH, PADDING, WINDOW_HEIGHT, WINDOW_WIDTH, INPUTS,
        )  # fmt: skip
        x = tl.load(x_ptr + offsets, mask=window_mask, other=0.0)
        w = tl.load(w_ptr + number[:, None] * size + column[None, :], mask=(number < window)[:, None], other=0.0)
        accumulator = tl.dot(rounded(x, PRECISION), rounded(w, PRECISION), accumulator, input_precision=PRECISION)
    start, within = _patch_offsets(patch, column, OUT_HEIGHT, OUT_WIDTH, OUTPUTS, PATCH_HEIGHT, PATCH_WIDTH)
    offsets = network * images * (OUT_HEIGHT * OUT_WIDTH * OUTPUTS) + start[:, None] + within[None, :]
    if SHORTCUT:
        accumulator += tl.load(shortcut_grad_ptr + offsets, mask=mask[:, None], other=0.0).to(tl.float32)
    if BACKWARD and SUMS:
        y = tl.load(y_ptr + offsets, mask=mask[:, None], other=0.0).to(tl.float32)
        accumulator = activation_grad(accumulator, y, KIND)
    out = accumulator.to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + offsets, out, mask=mask[:, None])
    if SUMS:
        out = out.to(tl.float32)
        other = out
        if BACKWARD:
            other = tl.load(z_ptr + offsets, mask=mask[:, None], other=0.0).to(tl.float32)
        store_sums(sums_ptr, out, other, network * blocks + block, OUTPUTS, PATCH_HEIGHT * PATCH_WIDTH)


@triton.jit
def weight_grad(
    grad_ptr,
    x_ptr,
    out_ptr,
    patches,
    patches_per_share,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    OUT_HEIGHT: tl.constexpr,
    OUT_WIDTH: tl.constexpr,
    PATCH_HEIGHT: tl.constexpr,
    PATCH_WIDTH: tl.constexpr,
    STEP_HEIGHT: tl.constexpr,
    STEP_WIDTH: tl.constexpr,
    PADDING: tl.constexpr,
    WINDOW_HEIGHT: tl.constexpr,
    WINDOW_WIDTH: tl.constexpr,
    INPUTS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    BLOCK_PATCHES: tl.constexpr,
    BLOCK_WINDOW: tl.constexpr,
    PRECISION: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Write the product of a share of the patches of a network's gradient with a block of their windows."""
    part, share, network = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    size: tl.constexpr = PATCH_HEIGHT * PATCH_WIDTH * OUTPUTS
    window: tl.constexpr = WINDOW_HEIGHT * WINDOW_WIDTH * INPUTS
    column, number = tl.arange(0, size), part * BLOCK_WINDOW + tl.arange(0, BLOCK_WINDOW)
    images = patches // ((OUT_HEIGHT // PATCH_HEIGHT) * (OUT_WIDTH // PATCH_WIDTH))
    grad_ptr += network * images * (OUT_HEIGHT * OUT_WIDTH * OUTPUTS)
    x_ptr += network * images * (HEIGHT * WIDTH * INPUTS)
    accumulator = tl.zeros((size, BLOCK_WINDOW), tl.float32)
    stop = tl.minimum((share + 1) * patches_per_share, patches)
    for begin in tl.range(share * patches_per_share, stop, BLOCK_PATCHES, num_stages=STAGES):
        patch = begin + tl.arange(0, BLOCK_PATCHES)
        mask = patch < stop
        start, within = _patch_offsets(patch, column, OUT_HEIGHT, OUT_WIDTH, OUTPUTS, PATCH_HEIGHT, PATCH_WIDTH)
        grad = tl.load(grad_ptr + start[None, :] + within[:, None], mask=mask[None, :], other=0.0)
        offsets, window_mask = _window_offsets(
            patch, mask, number, HEIGHT, WIDTH, OUT_HEIGHT, OUT_WIDTH, PATCH_HEIGHT, PATCH_WIDTH, STEP_HEIGHT,
            STEP_WIDTH, PADDING, WINDOW_HEIGHT, WINDOW_WIDTH, INPUTS,
        )  # fmt: skip
        x = tl.load(x_ptr + offsets, mask=window_mask, other=0.0)
        accumulator = tl.dot(rounded(grad, PRECISION), rounded(x, PRECISION), accumulator, input_precision=PRECISION)
    offsets = ((network * tl.num_programs(1) + share) * size + column[:, None]) * window + number[None, :]
    tl.store(out_ptr + offsets, accumulator, mask=(number < window)[None, :])
