"""GPU kernels of block-sparse products, in Triton.

Samples are ``[tokens, features]`` with any stride between tokens; the active blocks of a weight ``[outputs, inputs]``
are ``[blocks, BLOCK, BLOCK]``, row by row of the grid of blocks. Which block lies where is read from int32 tables on
the device, and the number of programs depends on the number of blocks alone: a captured graph stays valid when blocks
move.

No two programs write to the same address and nothing is added atomically, so that results do not depend on the order of
work. Products accumulate in float32.
"""

import triton
import triton.language as tl


@triton.jit
def block_product(
    x_ptr,
    values_ptr,
    bias_ptr,
    y_ptr,
    starts_ptr,
    others_ptr,
    order_ptr,
    tokens,
    strips,
    x_stride,
    y_stride,
    TRANSPOSED: tl.constexpr,
    BIAS: tl.constexpr,
    BLOCK: tl.constexpr,
    INNER: tl.constexpr,
    TOKENS: tl.constexpr,
    PRECISION: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Write a tile of ``x @ weight.T + bias``: TOKENS samples, the BLOCK outputs of one row of blocks.

    TRANSPOSED, it is a tile of ``x @ weight`` and goes by columns of blocks. The blocks of strip `s` are entries
    ``starts[s]`` to ``starts[s + 1]`` of `others` (where they lie along the other side) and of `order` (which of
    `values`; only read when TRANSPOSED). Neighbouring programs take the same samples, which the L2 cache then holds.
    """
    program = tl.program_id(0)
    tile, strip = program // strips, program % strips
    token, inner, outer = tl.arange(0, TOKENS), tl.arange(0, INNER), tl.arange(0, BLOCK)
    live = (tile * TOKENS + token < tokens)[:, None]
    x_ptrs = x_ptr + tile.to(tl.int64) * TOKENS * x_stride + token[:, None] * x_stride + inner[None, :]
    if TRANSPOSED:  # what is summed over is the first side of a block, else the second
        w_ptrs = values_ptr + inner[:, None] * BLOCK + outer[None, :]
    else:
        w_ptrs = values_ptr + outer[None, :] * BLOCK + inner[:, None]
    total = tl.zeros((TOKENS, BLOCK), tl.float32)
    # Each block is taken in PARTS steps.
    PARTS: tl.constexpr = BLOCK // INNER
    start, end = tl.load(starts_ptr + strip), tl.load(starts_ptr + strip + 1)
    # Where the next block lies is read one step ahead: the loads of samples then need not wait for it.
    other, which = tl.load(others_ptr + start), start
    if TRANSPOSED:
        which = tl.load(order_ptr + start)
    for step in tl.range(start * PARTS, end * PARTS, num_stages=STAGES):
        part = step % PARTS * INNER
        x = tl.load(x_ptrs + other * BLOCK + part, mask=live, other=0.0)
        w = tl.load(w_ptrs + which.to(tl.int64) * (BLOCK * BLOCK) + (part * BLOCK if TRANSPOSED else part))
        total = tl.dot(x, w, total, input_precision=PRECISION)
        entry = (step + 1) // PARTS
        other = tl.load(others_ptr + entry)
        which = tl.load(order_ptr + entry) if TRANSPOSED else entry
    if BIAS:
        total += tl.load(bias_ptr + strip * BLOCK + outer).to(tl.float32)[None, :]
    y_ptrs = y_ptr + tile.to(tl.int64) * TOKENS * y_stride + token[:, None] * y_stride + strip * BLOCK + outer[None, :]
    tl.store(y_ptrs, total.to(y_ptr.dtype.element_ty), mask=live)


@triton.jit
def block_weight_grad(
    g_ptr,
    x_ptr,
    out_ptr,
    groups_ptr,
    rows_ptr,
    columns_ptr,
    starts_ptr,
    tokens,
    groups,
    blocks,
    share,
    g_stride,
    x_stride,
    BLOCK: tl.constexpr,
    GROUP: tl.constexpr,
    TOKENS: tl.constexpr,
    PRECISION: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Write the part of ``g.T @ x`` that falls into a group of blocks, summed over one share of the tokens.

    A group is at most GROUP blocks of one row, which read the same columns of `g`; the first block of each is in
    `groups`, the number of all blocks where there is none. `share` is a multiple of TOKENS, and `out` is
    ``[shares, blocks, BLOCK, BLOCK]``.
    """
    program = tl.program_id(0)
    group, split = program % groups, program // groups
    first = tl.load(groups_ptr + group)
    if first < blocks:
        row = tl.load(rows_ptr + first)
        last = tl.minimum(first + GROUP, tl.load(starts_ptr + row + 1))
        lane, outer, token = tl.arange(0, GROUP * BLOCK), tl.arange(0, BLOCK), tl.arange(0, TOKENS)
        block = first + lane // BLOCK
        column = tl.load(columns_ptr + block, mask=block < last, other=0) * BLOCK + lane % BLOCK
        column = tl.max_contiguous(tl.multiple_of(column, BLOCK), BLOCK)
        begin = split * share
        x_ptrs = x_ptr + begin.to(tl.int64) * x_stride + token[None, :] * x_stride + column[:, None]
        g_ptrs = g_ptr + begin.to(tl.int64) * g_stride + token[:, None] * g_stride + row * BLOCK + outer[None, :]
        total = tl.zeros((GROUP * BLOCK, BLOCK), tl.float32)
        for start in tl.range(begin, tl.minimum(begin + share, tokens), TOKENS, num_stages=STAGES):
            live = start + token < tokens
            x = tl.load(x_ptrs, mask=live[None, :] & (block < last)[:, None], other=0.0)
            g = tl.load(g_ptrs, mask=live[:, None], other=0.0)
            total = tl.dot(x, g, total, input_precision=PRECISION)
            x_ptrs += TOKENS * x_stride
            g_ptrs += TOKENS * g_stride
        place = (split.to(tl.int64) * blocks + block) * (BLOCK * BLOCK) + lane % BLOCK
        out_ptrs = out_ptr + place[:, None] + outer[None, :] * BLOCK
        tl.store(out_ptrs, total.to(out_ptr.dtype.element_ty), mask=(block < last)[:, None])
