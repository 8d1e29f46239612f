"""GPU kernels for residual networks, in Triton: convolutions with what comes after them, and gradients of weights.

Samples are ``[members, rows, channels]``, a row for every position of every image; weights ``[members, out, taps *
in]``. All are contiguous. Channels and the sizes of blocks, in capitals, are powers of two; rows may be any number.
Convolutions pad with zeros.

A convolution is computed in patches of DOWN times ACROSS outputs (see `views`). What a patch sees is a window that is
a little larger, some runs of numbers in memory: read once for all outputs of the patch, not once for each tap. The
kernel is laid out for that, ``[members, numbers of a window, numbers of a patch]``, with zeros where an output does not
see a pixel. A product takes INNER numbers of the window at a time, taps and channels alike.
"""

import triton
import triton.language as tl

from orthosparse.lab.training.stacked.chain_kernels import rounded
from orthosparse.lab.training.stacked.norm_kernels import activation_grad, sum_up


@triton.jit
def _spots(row, HEIGHT: tl.constexpr, WIDE: tl.constexpr):
    """Return the image of patches, and where they are in it, which has HEIGHT times WIDE of them."""
    return row // (WIDE * HEIGHT), (row // WIDE) % HEIGHT, row % WIDE


@triton.jit
def _window(
    row,
    live,
    number,
    HEIGHT: tl.constexpr,
    WIDE: tl.constexpr,
    OUT_HEIGHT: tl.constexpr,
    OUT_WIDE: tl.constexpr,
    DOWN: tl.constexpr,
    ACROSS: tl.constexpr,
    STEP_DOWN: tl.constexpr,
    STEP_ACROSS: tl.constexpr,
    BEFORE: tl.constexpr,
    LINES: tl.constexpr,
    COLUMNS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """Return where some numbers of the windows lie that patches see, [rows, numbers], and which of them there are."""
    run: tl.constexpr = COLUMNS * CHANNELS
    image, down, across = _spots(row, OUT_HEIGHT // DOWN, OUT_WIDE // ACROSS)
    line, column = down * STEP_DOWN - BEFORE, across * STEP_ACROSS - BEFORE
    below, beside = number // run, number % run
    start = ((image * HEIGHT + line) * WIDE + column) * CHANNELS
    place = start[:, None] + (below * (WIDE * CHANNELS) + beside)[None, :]
    seen_line, seen_column = line[:, None] + below[None, :], column[:, None] + (beside // CHANNELS)[None, :]
    there = (seen_line >= 0) & (seen_line < HEIGHT) & (seen_column >= 0) & (seen_column < WIDE)
    there = there & live[:, None] & (number < LINES * run)[None, :]
    # All channels of a pixel lie side by side and are there or not: where windows have odd sizes that is not seen.
    place = tl.max_contiguous(tl.multiple_of(place, (1, CHANNELS)), (1, CHANNELS))
    return place, tl.max_constancy(there, (1, CHANNELS))


@triton.jit
def _patch(
    row,
    column,
    OUT_HEIGHT: tl.constexpr,
    OUT_WIDE: tl.constexpr,
    CHANNELS: tl.constexpr,
    DOWN: tl.constexpr,
    ACROSS: tl.constexpr,
):
    """Return where the numbers of patches lie: first the row of each patch, then what its columns add to that."""
    image, down, across = _spots(row, OUT_HEIGHT // DOWN, OUT_WIDE // ACROSS)
    start = ((image * OUT_HEIGHT + down * DOWN) * OUT_WIDE + across * ACROSS) * CHANNELS
    wide: tl.constexpr = ACROSS * CHANNELS
    return start, (column // wide) * (OUT_WIDE * CHANNELS) + column % wide


@triton.jit
def convolve(
    x_ptr,
    w_ptr,
    add_ptr,
    y_ptr,
    z_ptr,
    out_ptr,
    sums_ptr,
    rows,
    BACKWARD: tl.constexpr,
    ADD: tl.constexpr,
    KIND: tl.constexpr,
    SUMS: tl.constexpr,
    HEIGHT: tl.constexpr,
    WIDE: tl.constexpr,
    OUT_HEIGHT: tl.constexpr,
    OUT_WIDE: tl.constexpr,
    DOWN: tl.constexpr,
    ACROSS: tl.constexpr,
    STEP_DOWN: tl.constexpr,
    STEP_ACROSS: tl.constexpr,
    BEFORE: tl.constexpr,
    LINES: tl.constexpr,
    COLUMNS: tl.constexpr,
    INPUTS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    ROWS: tl.constexpr,
    INNER: tl.constexpr,
    PRECISION: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Write some patches of the convolution of one member, and the sums of them and of their squares (SUMS).

    In the BACKWARD pass, which is the convolution of a gradient, `add_ptr` is added to it (ADD), and it is taken back
    through the activation that gave `y_ptr` (KIND); its sums are those of it and of its product with `z_ptr`.
    """
    tile, member, tiles = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.num_programs(0)
    wide: tl.constexpr = DOWN * ACROSS * OUTPUTS
    window: tl.constexpr = LINES * COLUMNS * INPUTS
    row, column = tile * ROWS + tl.arange(0, ROWS), tl.arange(0, wide)
    live = row < rows
    images = rows // ((OUT_HEIGHT // DOWN) * (OUT_WIDE // ACROSS))
    x_ptr += member * images * (HEIGHT * WIDE * INPUTS)
    w_ptr += member * (window * wide)
    total = tl.zeros((ROWS, wide), tl.float32)
    for first in tl.range(0, window, INNER, num_stages=STAGES):
        number = first + tl.arange(0, INNER)
        place, there = _window(
            row, live, number, HEIGHT, WIDE, OUT_HEIGHT, OUT_WIDE, DOWN, ACROSS, STEP_DOWN, STEP_ACROSS, BEFORE,
            LINES, COLUMNS, INPUTS,
        )  # fmt: skip
        x = tl.load(x_ptr + place, mask=there, other=0.0)
        w = tl.load(w_ptr + number[:, None] * wide + column[None, :], mask=(number < window)[:, None], other=0.0)
        total = tl.dot(rounded(x, PRECISION), rounded(w, PRECISION), total, input_precision=PRECISION)
    start, further = _patch(row, column, OUT_HEIGHT, OUT_WIDE, OUTPUTS, DOWN, ACROSS)
    place = member * images * (OUT_HEIGHT * OUT_WIDE * OUTPUTS) + start[:, None] + further[None, :]
    if ADD:
        total += tl.load(add_ptr + place, mask=live[:, None], other=0.0).to(tl.float32)
    if BACKWARD and SUMS:
        y = tl.load(y_ptr + place, mask=live[:, None], other=0.0).to(tl.float32)
        total = activation_grad(total, y, KIND)
    found = total.to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + place, found, mask=live[:, None])
    if SUMS:
        found = found.to(tl.float32)
        other = found
        if BACKWARD:
            other = tl.load(z_ptr + place, mask=live[:, None], other=0.0).to(tl.float32)
        sum_up(sums_ptr, found, other, member * tiles + tile, OUTPUTS, DOWN * ACROSS)


@triton.jit
def weight_grad(
    grad_ptr,
    x_ptr,
    out_ptr,
    rows,
    share,
    HEIGHT: tl.constexpr,
    WIDE: tl.constexpr,
    OUT_HEIGHT: tl.constexpr,
    OUT_WIDE: tl.constexpr,
    DOWN: tl.constexpr,
    ACROSS: tl.constexpr,
    STEP_DOWN: tl.constexpr,
    STEP_ACROSS: tl.constexpr,
    BEFORE: tl.constexpr,
    LINES: tl.constexpr,
    COLUMNS: tl.constexpr,
    INPUTS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    ROWS: tl.constexpr,
    INNER: tl.constexpr,
    PRECISION: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Write the product of a share of the patches of a member's gradient with what they saw, some of it."""
    part, slice_, member = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    wide: tl.constexpr = DOWN * ACROSS * OUTPUTS
    window: tl.constexpr = LINES * COLUMNS * INPUTS
    column, number = tl.arange(0, wide), part * INNER + tl.arange(0, INNER)
    images = rows // ((OUT_HEIGHT // DOWN) * (OUT_WIDE // ACROSS))
    grad_ptr += member * images * (OUT_HEIGHT * OUT_WIDE * OUTPUTS)
    x_ptr += member * images * (HEIGHT * WIDE * INPUTS)
    total = tl.zeros((wide, INNER), tl.float32)
    stop = tl.minimum((slice_ + 1) * share, rows)
    for begin in tl.range(slice_ * share, stop, ROWS, num_stages=STAGES):
        row = begin + tl.arange(0, ROWS)
        live = row < stop
        start, further = _patch(row, column, OUT_HEIGHT, OUT_WIDE, OUTPUTS, DOWN, ACROSS)
        grad = tl.load(grad_ptr + start[None, :] + further[:, None], mask=live[None, :], other=0.0)
        place, there = _window(
            row, live, number, HEIGHT, WIDE, OUT_HEIGHT, OUT_WIDE, DOWN, ACROSS, STEP_DOWN, STEP_ACROSS, BEFORE,
            LINES, COLUMNS, INPUTS,
        )  # fmt: skip
        x = tl.load(x_ptr + place, mask=there, other=0.0)
        total = tl.dot(rounded(grad, PRECISION), rounded(x, PRECISION), total, input_precision=PRECISION)
    place = ((member * tl.num_programs(1) + slice_) * wide + column[:, None]) * window + number[None, :]
    tl.store(out_ptr + place, total, mask=(number < window)[None, :])
