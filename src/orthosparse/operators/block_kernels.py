"""GPU kernels of block-sparse products, in Triton.

Samples are ``[tokens, features]`` with any stride between tokens; the active blocks of a weight ``[outputs, inputs]``
are ``[blocks, BLOCK, BLOCK]``, row by row of the grid of blocks. The indices of the blocks are read from int32
tables on the device, and the number of programs depends only on the number of blocks, so a captured graph stays valid
when blocks move.

No two programs write to the same address and there are no atomic additions, so results do not depend on the order of
execution. Products accumulate in float32.
"""

import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor as TensorDescriptor

# Arguments that are only bounds: one compiled kernel serves all their values.
_PLAIN = ["tokens", "rows", "columns", "blocks"]


@triton.jit(do_not_specialize=_PLAIN)
def block_product(
    x_ptr,
    values_ptr,
    bias_ptr,
    y_ptr,
    plan_ptr,
    tokens,
    rows,
    columns,
    blocks,
    x_stride,
    TMA: tl.constexpr,
    TRANSPOSED: tl.constexpr,
    BIAS: tl.constexpr,
    EVEN: tl.constexpr,
    BLOCK: tl.constexpr,
    INNER: tl.constexpr,
    TOKENS: tl.constexpr,
    PRECISION: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Write a tile of ``x @ weight.T + bias``: TOKENS samples, the BLOCK outputs of one row of blocks.

    If TRANSPOSED, it is a tile of ``x @ weight``, for one column of blocks. The plan is that of a grid with `rows` rows
    and `columns` columns. Neighbouring programs read the same samples, so that these stay in the L2 cache. EVEN says
    that TOKENS divides the number of samples. With TMA, `x_ptr` and `values_ptr` are tensor descriptors, with which the
    GPU copies whole tiles (zeros past the end); the second describes the blocks as one tall matrix.
    """
    if TRANSPOSED:
        starts_ptr = plan_ptr + rows + 1 + 2 * blocks
        order_ptr = starts_ptr + columns + 1
        others_ptr = order_ptr + blocks
        strips = columns
    else:
        starts_ptr = plan_ptr
        others_ptr = plan_ptr + rows + 1
        order_ptr = others_ptr
        strips = rows
    program = tl.program_id(0)
    tile, strip = program // strips, program % strips
    token, inner, outer = tl.arange(0, TOKENS), tl.arange(0, INNER), tl.arange(0, BLOCK)
    live = (tile * TOKENS + token < tokens)[:, None]
    if not TMA:
        x_ptrs = x_ptr + tile.to(tl.int64) * TOKENS * x_stride + token[:, None] * x_stride + inner[None, :]
        if TRANSPOSED:  # the sum runs over the first dimension of a block, else over the second
            w_ptrs = values_ptr + inner[:, None] * BLOCK + outer[None, :]
        else:
            w_ptrs = values_ptr + outer[None, :] * BLOCK + inner[:, None]
    total = tl.zeros((TOKENS, BLOCK), tl.float32)
    # Each block takes PARTS steps.
    PARTS: tl.constexpr = BLOCK // INNER
    start, end = tl.load(starts_ptr + strip), tl.load(starts_ptr + strip + 1)
    # The index of the next block is loaded one step ahead, so that the loads of samples need not wait for it. The last
    # of these loads reads from the table that follows.
    other, which = tl.load(others_ptr + start), start
    if TRANSPOSED:
        which = tl.load(order_ptr + start)
    for step in tl.range(start * PARTS, end * PARTS, num_stages=STAGES):
        part = step % PARTS * INNER
        if TMA:
            x = x_ptr.load([tile * TOKENS, other * BLOCK + part])
        elif EVEN:
            x = tl.load(x_ptrs + other * BLOCK + part)
        else:
            x = tl.load(x_ptrs + other * BLOCK + part, mask=live, other=0.0)
        if not TMA:
            w = tl.load(w_ptrs + which.to(tl.int64) * (BLOCK * BLOCK) + (part * BLOCK if TRANSPOSED else part))
        elif TRANSPOSED:
            w = values_ptr.load([which * BLOCK + part, 0])
        else:
            w = values_ptr.load([which * BLOCK, part]).T
        total = tl.dot(x, w, total, input_precision=PRECISION)
        entry = (step + 1) // PARTS
        other = tl.load(others_ptr + entry)
        which = tl.load(order_ptr + entry) if TRANSPOSED else entry
    if BIAS:
        total += tl.load(bias_ptr + strip * BLOCK + outer).to(tl.float32)[None, :]
    width = strips * BLOCK
    y_ptrs = y_ptr + tile.to(tl.int64) * TOKENS * width + token[:, None] * width + strip * BLOCK + outer[None, :]
    tl.store(y_ptrs, total.to(y_ptr.dtype.element_ty), mask=live)


@triton.jit(do_not_specialize=[*_PLAIN, "share", "groups"])
def block_weight_grad(
    g_ptr,
    x_ptr,
    out_ptr,
    plan_ptr,
    tokens,
    rows,
    columns,
    blocks,
    groups,
    share,
    g_stride,
    x_stride,
    EVEN: tl.constexpr,
    BLOCK: tl.constexpr,
    GROUP: tl.constexpr,
    TOKENS: tl.constexpr,
    PRECISION: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Write the part of ``g.T @ x`` that belongs to a group of blocks, summed over one share of the tokens.

    A group is at most GROUP blocks of one row, which read the same columns of `g`; the plan has the first block of
    each, and the number of all blocks for an unused group. `share` is a multiple of TOKENS, EVEN says that TOKENS
    divides the number of samples, and `out` is ``[shares, blocks, BLOCK, BLOCK]``.
    """
    columns_ptr = plan_ptr + rows + 1
    rows_ptr = columns_ptr + blocks
    groups_ptr = rows_ptr + blocks + columns + 1 + 2 * blocks
    program = tl.program_id(0)
    group, split = program % groups, program // groups
    first = tl.load(groups_ptr + group)
    if first < blocks:
        row = tl.load(rows_ptr + first)
        last = tl.minimum(first + GROUP, tl.load(plan_ptr + row + 1))
        lane, outer, token = tl.arange(0, GROUP * BLOCK), tl.arange(0, BLOCK), tl.arange(0, TOKENS)
        block = first + lane // BLOCK
        column = tl.load(columns_ptr + block, mask=block < last, other=0) * BLOCK + lane % BLOCK
        column = tl.max_contiguous(tl.multiple_of(column, BLOCK), BLOCK)
        begin = split * share
        x_ptrs = x_ptr + begin.to(tl.int64) * x_stride + token[None, :] * x_stride + column[:, None]
        g_ptrs = g_ptr + begin.to(tl.int64) * g_stride + token[:, None] * g_stride + row * BLOCK + outer[None, :]
        total = tl.zeros((GROUP * BLOCK, BLOCK), tl.float32)
        for start in tl.range(begin, tl.minimum(begin + share, tokens), TOKENS, num_stages=STAGES):
            if EVEN:
                x = tl.load(x_ptrs, mask=(block < last)[:, None], other=0.0)
                g = tl.load(g_ptrs)
            else:
                live = start + token < tokens
                x = tl.load(x_ptrs, mask=live[None, :] & (block < last)[:, None], other=0.0)
                g = tl.load(g_ptrs, mask=live[:, None], other=0.0)
            total = tl.dot(x, g, total, input_precision=PRECISION)
            x_ptrs += TOKENS * x_stride
            g_ptrs += TOKENS * g_stride
        offset = (split.to(tl.int64) * blocks + block) * (BLOCK * BLOCK) + lane % BLOCK
        out_ptrs = out_ptr + offset[:, None] + outer[None, :] * BLOCK
        tl.store(out_ptrs, total.to(out_ptr.dtype.element_ty), mask=(block < last)[:, None])


@triton.jit(do_not_specialize=[*_PLAIN, "share", "groups"])
def block_pair_weight_grad(
    g_ptr,
    x_ptr,
    out_ptr,
    plan_ptr,
    tokens,
    rows,
    columns,
    blocks,
    groups,
    share,
    BLOCK: tl.constexpr,
    TOKENS: tl.constexpr,
    PRECISION: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Write what `block_weight_grad` does for groups of two; `g_ptr` and `x_ptr` are tensor descriptors."""
    columns_ptr = plan_ptr + rows + 1
    rows_ptr = columns_ptr + blocks
    groups_ptr = rows_ptr + blocks + columns + 1 + 2 * blocks
    program = tl.program_id(0)
    group, split = program % groups, program // groups
    first = tl.load(groups_ptr + group)
    if first < blocks:
        row = tl.load(rows_ptr + first)
        both = first + 1 < tl.load(plan_ptr + row + 1)
        column = tl.load(columns_ptr + first) * BLOCK
        neighbour = tl.load(columns_ptr + first + both.to(tl.int32)) * BLOCK  # a single block is read twice
        begin = split * share
        total, second = tl.zeros((BLOCK, BLOCK), tl.float32), tl.zeros((BLOCK, BLOCK), tl.float32)
        for start in tl.range(begin, tl.minimum(begin + share, tokens), TOKENS, num_stages=STAGES):
            g = g_ptr.load([start, row * BLOCK]).T
            total = tl.dot(g, x_ptr.load([start, column]), total, input_precision=PRECISION)
            second = tl.dot(g, x_ptr.load([start, neighbour]), second, input_precision=PRECISION)
        outer = tl.arange(0, BLOCK)
        offset = (split.to(tl.int64) * blocks + first) * (BLOCK * BLOCK)
        out_ptrs = out_ptr + offset + outer[:, None] * BLOCK + outer[None, :]
        tl.store(out_ptrs, total.to(out_ptr.dtype.element_ty))
        if both:
            tl.store(out_ptrs + BLOCK * BLOCK, second.to(out_ptr.dtype.element_ty))


@triton.jit(do_not_specialize=["size", "shares"])
def add_shares(shares_ptr, out_ptr, size, shares, LENGTH: tl.constexpr):
    """Write LENGTH numbers of the sum of ``[shares, size]`` over its first dimension."""
    index = tl.program_id(0).to(tl.int64) * LENGTH + tl.arange(0, LENGTH)
    share_ptrs = shares_ptr + index
    total = tl.load(share_ptrs, mask=index < size)
    for _ in range(1, shares):
        share_ptrs += size
        total += tl.load(share_ptrs, mask=index < size)
    tl.store(out_ptr + index, total.to(out_ptr.dtype.element_ty), mask=index < size)
