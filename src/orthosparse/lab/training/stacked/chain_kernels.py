"""GPU kernels, in Triton: a run of linear layers in one launch, convolutions with what follows them, and the update.

Samples are ``[members, rows, width]``, channels innermost; weights ``[layers, members, out, taps * in]``. A convolution
has circular padding and stride 1, and its rows are pixels: ``rows = batch * height * width``. All are contiguous. What
linear layers keep for the backward pass is transposed, ``[members, width, rows]``: TF32 products want what they sum
over innermost, and gradients of weights sum over rows.

Widths and the sizes of blocks, in capitals, are powers of two, at least 16; rows may be any number. Nothing sums over
members, and no two programs write to one place: results depend neither on who else is there nor on the order of work.

TF32 products drop the last 13 bits of what they are given. Without more, every factor would shrink by 3e-4 on average,
and a signal to half through 1000 layers. So all that goes into a product is rounded to TF32 before: samples and
gradients where they are made, weights in a copy that the update keeps.
"""

import triton
import triton.language as tl

# Below this |z| two terms of the series are exact to 1e-7; above it the exponential form is.
_SMALL = tl.constexpr(0.03)


@triton.jit
def tanh(z):
    """Return the hyperbolic tangent, exact to 1e-7."""
    near = z * (1 - z * z * 0.3333333333)
    far = 1 - 2 / (tl.exp(2 * tl.minimum(tl.maximum(z, -15.0), 15.0)) + 1)
    bent = tl.where(tl.abs(z) < _SMALL, near, far)
    return tl.where(z == z, bent, z)  # what is not a number stays so


@triton.jit
def rounded(x, PRECISION: tl.constexpr):
    """Round to what a product reads, to nearest and away from zero between two.

    What is not a number is left alone: a GPU writes it as 0x7fffffff, and the sum would make a zero of it.
    """
    if PRECISION == "tf32" and x.dtype == tl.float32:
        near = ((x.to(tl.int32, bitcast=True) + 0x1000) & -0x2000).to(tl.float32, bitcast=True)
        x = tl.where(x == x, near, x)
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
    ROWS: tl.constexpr,
    PRECISION: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Take some rows of one member through all layers; write every output, transposed (KEEP), or the last one as it is.

    The samples stay in the multiprocessor; the weights of layer after layer are streamed past them.
    """
    tile, member, members = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.num_programs(1).to(tl.int64)
    row, column = tile * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    place, live = member * rows * WIDTH + row[:, None] * WIDTH + column[None, :], row[:, None] < rows
    x = rounded(tl.load(x_ptr + place, mask=live, other=0.0), PRECISION)
    w_ptrs = w_ptr + member * WIDTH * WIDTH + column[None, :] * WIDTH + column[:, None]
    b_ptrs = b_ptr + member * WIDTH + column
    y_ptrs = y_ptr + member * rows * WIDTH + column[None, :] * rows + row[:, None]
    for _ in tl.range(layers, num_stages=STAGES):
        w = tl.load(w_ptrs)
        b = tl.load(b_ptrs)
        x = rounded(tanh(tl.dot(x, w, input_precision=PRECISION) + b[None, :]).to(w.dtype), PRECISION)
        if KEEP:
            tl.store(y_ptrs, x, mask=live)
            y_ptrs += members * rows * WIDTH
        w_ptrs += members * WIDTH * WIDTH
        b_ptrs += members * WIDTH
    if not KEEP:
        tl.store(y_ptr + place, x, mask=live)


@triton.jit
def chain_backward(
    g_ptr,
    y_ptr,
    w_ptr,
    z_ptr,
    out_ptr,
    rows,
    layers,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    PRECISION: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Take the gradient of some rows of one member back through all layers, whose outputs are at `y_ptr`, transposed.

    The gradients before the activations go to `z_ptr`, transposed; that of the first layer's input to `out_ptr`.
    """
    tile, member, members = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.num_programs(1).to(tl.int64)
    row, column = tile * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    place, live = member * rows * WIDTH + row[:, None] * WIDTH + column[None, :], row[:, None] < rows
    g = tl.load(g_ptr + place, mask=live, other=0.0).to(tl.float32)
    last = (layers - 1) * members
    transposed = (last + member) * rows * WIDTH + column[None, :] * rows + row[:, None]
    y_ptrs, z_ptrs = y_ptr + transposed, z_ptr + transposed
    w_ptrs = w_ptr + (last + member) * WIDTH * WIDTH + column[:, None] * WIDTH + column[None, :]
    y = tl.load(y_ptrs, mask=live, other=0.0).to(tl.float32)
    z = rounded((g * (1 - y * y)).to(w_ptr.dtype.element_ty), PRECISION)
    for layer in tl.range(layers, num_stages=STAGES):
        y_ptrs -= members * rows * WIDTH
        # Loaded one layer early; below the first there is none.
        y = tl.load(y_ptrs, mask=row[:, None] < tl.where(layer + 1 < layers, rows, 0), other=0.0).to(tl.float32)
        w = tl.load(w_ptrs)
        tl.store(z_ptrs, z, mask=live)
        g = tl.dot(z, w, input_precision=PRECISION)
        z = rounded((g * (1 - y * y)).to(w_ptr.dtype.element_ty), PRECISION)
        z_ptrs -= members * rows * WIDTH
        w_ptrs -= members * WIDTH * WIDTH
    tl.store(out_ptr + place, g.to(out_ptr.dtype.element_ty), mask=live)


@triton.jit
def _seen(row, tap, SIGN: tl.constexpr, HEIGHT: tl.constexpr, WIDE: tl.constexpr, SIDE: tl.constexpr):
    """Return which pixels the given ones see through a tap (SIGN 1), or are seen by (-1); padding is circular."""
    down, right = tap // SIDE - SIDE // 2, tap % SIDE - SIDE // 2
    pixel = row % (HEIGHT * WIDE)
    h = (pixel // WIDE + SIGN * down + HEIGHT) % HEIGHT
    w = (pixel % WIDE + SIGN * right + WIDE) % WIDE
    return row - pixel + h * WIDE + w


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
    WIDE: tl.constexpr,
    SIDE: tl.constexpr,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    INNER: tl.constexpr,
    PRECISION: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Convolve some pixels of one member to some channels, and do what follows.

    Forward, that is the bias and the activation. BACKWARD, it is the gradient of the layer's input, from that before
    its activation; times the derivative of the activation before it, whose output is at `y_ptr`, if there is one
    (ACTIVATED).
    """
    tile, part, member = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    row, inner = tile * ROWS + tl.arange(0, ROWS), tl.arange(0, INNER)
    column = part * COLUMNS + tl.arange(0, COLUMNS)
    live = row[:, None] < rows
    x_ptr += member * rows * WIDTH
    w_ptr += member * WIDTH * SIDE * SIDE * WIDTH
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for step in tl.range(SIDE * SIDE * (WIDTH // INNER), num_stages=STAGES):
        tap, channel = step // (WIDTH // INNER), step % (WIDTH // INNER) * INNER + inner
        seen = _seen(row, tap, -1 if BACKWARD else 1, HEIGHT, WIDE, SIDE)
        x = tl.load(x_ptr + seen[:, None] * WIDTH + channel[None, :], mask=live, other=0.0)
        # A weight is [out, taps, in]; the sum is over `in` forward and over `out` backward.
        if BACKWARD:
            w = tl.load(w_ptr + (channel[:, None] * SIDE * SIDE + tap) * WIDTH + column[None, :])
        else:
            w = tl.load(w_ptr + (column[None, :] * SIDE * SIDE + tap) * WIDTH + channel[:, None])
        total = tl.dot(x, w, total, input_precision=PRECISION)
    place = member * rows * WIDTH + row[:, None] * WIDTH + column[None, :]
    if BACKWARD:
        if ACTIVATED:
            y = tl.load(y_ptr + place, mask=live, other=0.0).to(tl.float32)
            total = total * (1 - y * y)
    else:
        b = tl.load(b_ptr + member * WIDTH + column).to(tl.float32)
        total = tanh(total + b[None, :])
    tl.store(out_ptr + place, rounded(total.to(out_ptr.dtype.element_ty), PRECISION), mask=live)


@triton.jit
def weight_grad(
    z_ptr,
    x_ptr,
    off_ptr,
    g_ptr,
    b_ptr,
    norm_ptr,
    rows,
    TRANSPOSED: tl.constexpr,
    HEIGHT: tl.constexpr,
    WIDE: tl.constexpr,
    SIDE: tl.constexpr,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    PRECISION: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Write the gradient of a tap of one layer of one member, zero off its mask, and the sum of its squares.

    A linear layer is a convolution of maps of one pixel. Its samples and gradients may be TRANSPOSED; then the gradient
    of its biases goes to `b_ptr`, by a product with ones.
    """
    tap, which = tl.program_id(0), tl.program_id(1).to(tl.int64)
    channel = tl.arange(0, WIDTH)
    z_ptr += which * rows * WIDTH
    x_ptr += which * rows * WIDTH
    total, sums = tl.zeros((WIDTH, WIDTH), tl.float32), tl.zeros((WIDTH, 16), tl.float32)
    ones = tl.full((ROWS, 16), 1.0, z_ptr.dtype.element_ty)
    for start in tl.range(0, rows, ROWS, num_stages=STAGES):
        row = start + tl.arange(0, ROWS)
        live = row < rows
        if TRANSPOSED:
            z_ptrs = z_ptr + channel[:, None] * rows + row[None, :]
            x_ptrs = x_ptr + channel[None, :] * rows + row[:, None]
        else:
            z_ptrs = z_ptr + row[None, :] * WIDTH + channel[:, None]
            x_ptrs = x_ptr + _seen(row, tap, 1, HEIGHT, WIDE, SIDE)[:, None] * WIDTH + channel[None, :]
        z = tl.load(z_ptrs, mask=live[None, :], other=0.0)
        x = tl.load(x_ptrs, mask=live[:, None], other=0.0)
        total = tl.dot(z, x, total, input_precision=PRECISION)
        if TRANSPOSED:
            sums = tl.dot(z, ones, sums, input_precision=PRECISION)
    if TRANSPOSED:
        # All columns are the same.
        tl.store(b_ptr + which * WIDTH + channel, tl.sum(sums, axis=1) / 16)
    place = (which * WIDTH + channel[:, None]) * (SIDE * SIDE * WIDTH) + tap * WIDTH + channel[None, :]
    total = tl.where(tl.load(off_ptr + place) != 0, 0.0, total)
    tl.store(g_ptr + place, total)
    tl.store(norm_ptr + which * SIDE * SIDE + tap, tl.sum(total * total))


@triton.jit
def sgd_step(
    value_ptr,
    gradient_ptr,
    momentum_ptr,
    rounded_ptr,
    active_ptr,
    dead_ptr,
    rate_ptr,
    members,
    size,
    decay,
    inertia,
    NESTEROV: tl.constexpr,
    ROUNDED: tl.constexpr,
    MASKED: tl.constexpr,
    GROUP: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Take a step of SGD with momentum on a part of one layer of one member, unless that has stopped.

    What it gives is ROUNDED to TF32, too, at `rounded_ptr`. If the entries are MASKED, groups of them that are all off
    the mask, as `active_ptr` says, are left as they are.
    """
    which, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    if tl.load(dead_ptr + which % members) == 0:
        rate = tl.load(rate_ptr + which % members)
        # Rows of one group each: whoever compiles this sees that a group is taken or left as a whole.
        group = block * (BLOCK // GROUP) + tl.arange(0, BLOCK // GROUP)
        entry = group[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
        place, live = which * size + entry, entry < size
        if MASKED:
            active = tl.load(active_ptr + which * (size // GROUP) + group, mask=group < size // GROUP, other=0)
            live = live & (active != 0)[:, None]
        value = tl.load(value_ptr + place, mask=live, other=0.0)
        slope = tl.load(gradient_ptr + place, mask=live, other=0.0) + decay * value
        momentum = slope + inertia * tl.load(momentum_ptr + place, mask=live, other=0.0)
        tl.store(momentum_ptr + place, momentum, mask=live)
        if NESTEROV:
            slope += inertia * momentum
        else:
            slope = momentum
        value -= rate * slope
        tl.store(value_ptr + place, value, mask=live)
        if ROUNDED:
            tl.store(rounded_ptr + place, rounded(value, "tf32"), mask=live)
