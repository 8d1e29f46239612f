"""GPU kernels, in Triton: a run of linear layers in one launch, circular convolutions, and the SGD step.

Samples are ``[networks, rows, width]``, channels innermost; weights ``[layers, networks, out, taps * in]``. All are
contiguous. A convolution has circular padding and stride 1, and its rows are pixels: ``rows = batch * height * width``.
What linear layers keep for the backward pass is transposed, ``[networks, width, rows]``: TF32 products read the
dimension that they sum over innermost, and gradients of weights sum over rows.

Widths and the sizes of blocks, in capitals, are powers of two, at least 16; rows may be any number. Nothing sums over
networks, and no two programs write to the same address: results depend neither on the other networks nor on the order
in which programs run.

TF32 products drop the last 13 bits of their operands. Without rounding, every factor would shrink by 3e-4 on average,
and a signal would lose half of its size in 1000 layers. So all operands are rounded to TF32 beforehand: samples and
gradients where they are computed, weights in a copy that the SGD step keeps.
"""

import triton
import triton.language as tl

# Below this |z| two terms of the series are exact to 1e-7; above it the exponential form is.
_SMALL = tl.constexpr(0.03)


@triton.jit
def tanh(z):
    """Return the hyperbolic tangent, exact to 1e-7."""
    series = z * (1 - z * z * 0.3333333333)
    exponential = 1 - 2 / (tl.exp(2 * tl.minimum(tl.maximum(z, -15.0), 15.0)) + 1)
    y = tl.where(tl.abs(z) < _SMALL, series, exponential)
    return tl.where(z == z, y, z)  # NaN stays NaN


@triton.jit
def rounded(x, PRECISION: tl.constexpr):
    """Round an operand of a product to TF32, to nearest and away from zero between two, if PRECISION is that.

    NaN is left as it is: a GPU writes it as 0x7fffffff, which the sum would turn into a zero.
    """
    if PRECISION == "tf32" and x.dtype == tl.float32:
        nearest = ((x.to(tl.int32, bitcast=True) + 0x1000) & -0x2000).to(tl.float32, bitcast=True)
        x = tl.where(x == x, nearest, x)
    return x


@triton.jit
def chain_forward(
    x_ptr,
    w_ptr,
    b_ptr,
    y_ptr,
    rows,
    layers,
    KEEP: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    PRECISION: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Compute all layers for a block of rows of one network; write every output, transposed (KEEP), or only the last.

    The samples stay in registers, and the weights of one layer after the other are loaded.
    """
    block, network = tl.program_id(0), tl.program_id(1).to(tl.int64)
    networks = tl.num_programs(1).to(tl.int64)
    row, column = block * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS), tl.arange(0, WIDTH)
    offsets, mask = network * rows * WIDTH + row[:, None] * WIDTH + column[None, :], row[:, None] < rows
    x = rounded(tl.load(x_ptr + offsets, mask=mask, other=0.0), PRECISION)
    w_ptrs = w_ptr + network * WIDTH * WIDTH + column[None, :] * WIDTH + column[:, None]
    b_ptrs = b_ptr + network * WIDTH + column
    y_ptrs = y_ptr + network * rows * WIDTH + column[None, :] * rows + row[:, None]
    for _ in tl.range(layers, num_stages=STAGES):
        w = tl.load(w_ptrs)
        b = tl.load(b_ptrs)
        x = rounded(tanh(tl.dot(x, w, input_precision=PRECISION) + b[None, :]).to(w.dtype), PRECISION)
        if KEEP:
            tl.store(y_ptrs, x, mask=mask)
            y_ptrs += networks * rows * WIDTH
        w_ptrs += networks * WIDTH * WIDTH
        b_ptrs += networks * WIDTH
    if not KEEP:
        tl.store(y_ptr + offsets, x, mask=mask)


@triton.jit
def chain_backward(
    grad_ptr,
    y_ptr,
    w_ptr,
    z_grad_ptr,
    out_ptr,
    rows,
    layers,
    WIDTH: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    PRECISION: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Compute the gradients of all layers for a block of rows of one network; their outputs are at `y_ptr`, transposed.

    Write the gradients before the activations to `z_grad_ptr`, transposed, and that of the first layer's input to
    `out_ptr`.
    """
    block, network = tl.program_id(0), tl.program_id(1).to(tl.int64)
    networks = tl.num_programs(1).to(tl.int64)
    row, column = block * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS), tl.arange(0, WIDTH)
    offsets, mask = network * rows * WIDTH + row[:, None] * WIDTH + column[None, :], row[:, None] < rows
    grad = tl.load(grad_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    last = (layers - 1) * networks
    transposed = (last + network) * rows * WIDTH + column[None, :] * rows + row[:, None]
    y_ptrs, z_grad_ptrs = y_ptr + transposed, z_grad_ptr + transposed
    w_ptrs = w_ptr + (last + network) * WIDTH * WIDTH + column[:, None] * WIDTH + column[None, :]
    y = tl.load(y_ptrs, mask=mask, other=0.0).to(tl.float32)
    z_grad = rounded((grad * (1 - y * y)).to(w_ptr.dtype.element_ty), PRECISION)
    for layer in tl.range(layers, num_stages=STAGES):
        y_ptrs -= networks * rows * WIDTH
        # Loaded one layer early; the first layer has none below it.
        y = tl.load(y_ptrs, mask=row[:, None] < tl.where(layer + 1 < layers, rows, 0), other=0.0).to(tl.float32)
        w = tl.load(w_ptrs)
        tl.store(z_grad_ptrs, z_grad, mask=mask)
        grad = tl.dot(z_grad, w, input_precision=PRECISION)
        z_grad = rounded((grad * (1 - y * y)).to(w_ptr.dtype.element_ty), PRECISION)
        z_grad_ptrs -= networks * rows * WIDTH
        w_ptrs -= networks * WIDTH * WIDTH
    tl.store(out_ptr + offsets, grad.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def _neighbor(row, tap, SIGN: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, KERNEL: tl.constexpr):
    """Return the rows of the pixels that are a tap away (SIGN 1), or of which these are a tap away (-1); circular."""
    down, right = tap // KERNEL - KERNEL // 2, tap % KERNEL - KERNEL // 2
    pixel = row % (HEIGHT * WIDTH)
    h = (pixel // WIDTH + SIGN * down + HEIGHT) % HEIGHT
    w = (pixel % WIDTH + SIGN * right + WIDTH) % WIDTH
    return row - pixel + h * WIDTH + w


@triton.jit
def convolve(
    x_ptr,
    w_ptr,
    b_ptr,
    y_ptr,
    out_ptr,
    rows,
    BACKWARD: tl.constexpr,
    ACTIVATED: tl.constexpr,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    KERNEL: tl.constexpr,
    CHANNELS: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_OUT: tl.constexpr,
    BLOCK_IN: tl.constexpr,
    PRECISION: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Convolve a block of pixels of one network to a block of output channels, and apply the epilogue.

    Forward, that is the bias and the activation. BACKWARD, `x_ptr` is the gradient before a layer's activation, and the
    result that of its input. If the input is the output of an activation (ACTIVATED), which is at `y_ptr`, the result
    is the gradient before that.
    """
    block, part, network = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    row, inner = block * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS), tl.arange(0, BLOCK_IN)
    column = part * BLOCK_OUT + tl.arange(0, BLOCK_OUT)
    mask = row[:, None] < rows
    x_ptr += network * rows * CHANNELS
    w_ptr += network * CHANNELS * KERNEL * KERNEL * CHANNELS
    accumulator = tl.zeros((BLOCK_ROWS, BLOCK_OUT), tl.float32)
    for step in tl.range(KERNEL * KERNEL * (CHANNELS // BLOCK_IN), num_stages=STAGES):
        tap, channel = step // (CHANNELS // BLOCK_IN), step % (CHANNELS // BLOCK_IN) * BLOCK_IN + inner
        neighbor = _neighbor(row, tap, -1 if BACKWARD else 1, HEIGHT, WIDTH, KERNEL)
        x = tl.load(x_ptr + neighbor[:, None] * CHANNELS + channel[None, :], mask=mask, other=0.0)
        # A weight is [out, taps, in]; the sum is over `in` forward and over `out` backward.
        if BACKWARD:
            w = tl.load(w_ptr + (channel[:, None] * KERNEL * KERNEL + tap) * CHANNELS + column[None, :])
        else:
            w = tl.load(w_ptr + (column[None, :] * KERNEL * KERNEL + tap) * CHANNELS + channel[:, None])
        accumulator = tl.dot(x, w, accumulator, input_precision=PRECISION)
    offsets = network * rows * CHANNELS + row[:, None] * CHANNELS + column[None, :]
    if BACKWARD:
        if ACTIVATED:
            y = tl.load(y_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
            accumulator = accumulator * (1 - y * y)
    else:
        b = tl.load(b_ptr + network * CHANNELS + column).to(tl.float32)
        accumulator = tanh(accumulator + b[None, :])
    tl.store(out_ptr + offsets, rounded(accumulator.to(out_ptr.dtype.element_ty), PRECISION), mask=mask)


@triton.jit
def weight_grad(
    z_grad_ptr,
    x_ptr,
    off_ptr,
    weight_grad_ptr,
    bias_grad_ptr,
    square_ptr,
    rows,
    TRANSPOSED: tl.constexpr,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    KERNEL: tl.constexpr,
    CHANNELS: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    PRECISION: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Write the gradient of a tap of one layer of one network, zero off its mask, and the sum of its squares.

    A linear layer is a convolution of maps of one pixel. Its samples and gradients may be TRANSPOSED; then the gradient
    of its biases is written, too, by a product with ones.
    """
    tap, layer = tl.program_id(0), tl.program_id(1).to(tl.int64)  # of all layers of all networks
    channel = tl.arange(0, CHANNELS)
    z_grad_ptr += layer * rows * CHANNELS
    x_ptr += layer * rows * CHANNELS
    accumulator = tl.zeros((CHANNELS, CHANNELS), tl.float32)
    sums = tl.zeros((CHANNELS, 16), tl.float32)
    ones = tl.full((BLOCK_ROWS, 16), 1.0, z_grad_ptr.dtype.element_ty)
    for start in tl.range(0, rows, BLOCK_ROWS, num_stages=STAGES):
        row = start + tl.arange(0, BLOCK_ROWS)
        mask = row < rows
        if TRANSPOSED:
            z_grad_ptrs = z_grad_ptr + channel[:, None] * rows + row[None, :]
            x_ptrs = x_ptr + channel[None, :] * rows + row[:, None]
        else:
            z_grad_ptrs = z_grad_ptr + row[None, :] * CHANNELS + channel[:, None]
            x_ptrs = x_ptr + _neighbor(row, tap, 1, HEIGHT, WIDTH, KERNEL)[:, None] * CHANNELS + channel[None, :]
        z_grad = tl.load(z_grad_ptrs, mask=mask[None, :], other=0.0)
        x = tl.load(x_ptrs, mask=mask[:, None], other=0.0)
        accumulator = tl.dot(z_grad, x, accumulator, input_precision=PRECISION)
        if TRANSPOSED:
            sums = tl.dot(z_grad, ones, sums, input_precision=PRECISION)
    if TRANSPOSED:
        # All 16 columns are equal.
        tl.store(bias_grad_ptr + layer * CHANNELS + channel, tl.sum(sums, axis=1) / 16)
    offsets = (layer * CHANNELS + channel[:, None]) * (KERNEL * KERNEL * CHANNELS) + tap * CHANNELS + channel[None, :]
    accumulator = tl.where(tl.load(off_ptr + offsets) != 0, 0.0, accumulator)
    tl.store(weight_grad_ptr + offsets, accumulator)
    tl.store(square_ptr + layer * KERNEL * KERNEL + tap, tl.sum(accumulator * accumulator))


@triton.jit
def sgd_step(
    value_ptr,
    gradient_ptr,
    momentum_ptr,
    rounded_ptr,
    active_ptr,
    stopped_ptr,
    lr_ptr,
    networks,
    size,
    weight_decay,
    momentum_factor,
    NESTEROV: tl.constexpr,
    ROUNDED: tl.constexpr,
    MASKED: tl.constexpr,
    GROUP: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Take a step of SGD with momentum on a block of one layer of one network, unless the network has stopped.

    If ROUNDED, the new values are also written to `rounded_ptr`, rounded to TF32. If MASKED, only groups of entries
    that `active_ptr` marks are read and written; the others are off the mask as a whole.
    """
    layer, block = tl.program_id(0).to(tl.int64), tl.program_id(1)  # of all layers of all networks
    if tl.load(stopped_ptr + layer % networks) == 0:
        lr = tl.load(lr_ptr + layer % networks)
        # A row for each group, so that the compiler sees that a group is masked as a whole.
        group = block * (BLOCK // GROUP) + tl.arange(0, BLOCK // GROUP)
        entry = group[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
        offsets, mask = layer * size + entry, entry < size
        if MASKED:
            active = tl.load(active_ptr + layer * (size // GROUP) + group, mask=group < size // GROUP, other=0)
            mask = mask & (active != 0)[:, None]
        value = tl.load(value_ptr + offsets, mask=mask, other=0.0)
        gradient = tl.load(gradient_ptr + offsets, mask=mask, other=0.0) + weight_decay * value
        momentum = gradient + momentum_factor * tl.load(momentum_ptr + offsets, mask=mask, other=0.0)
        tl.store(momentum_ptr + offsets, momentum, mask=mask)
        if NESTEROV:
            gradient += momentum_factor * momentum
        else:
            gradient = momentum
        value -= lr * gradient
        tl.store(value_ptr + offsets, value, mask=mask)
        if ROUNDED:
            tl.store(rounded_ptr + offsets, rounded(value, "tf32"), mask=mask)
