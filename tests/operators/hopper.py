"""What Triton makes of the block kernels for a Hopper GPU, which need not be there."""

from orthosparse.operators.block_plan import GROUPS

SHARED = 227 * 1024  # bytes of a multiprocessor that one program may have
TYPES = {"bfloat16": "*bf16", "float16": "*fp16", "float32": "*fp32"}
_POINTERS = ("x_ptr", "g_ptr", "values_ptr", "bias_ptr", "y_ptr", "out_ptr")


def compiled(kernel, dtype, constants, warps, tiles=None):
    """Return a kernel compiled for pointers to `dtype`, and strides that are multiples of 16.

    `tiles` are the sizes of the tiles of those that are tensor descriptors instead.
    """
    import triton
    from triton.backends.compiler import GPUTarget

    signature, values, attributes = {}, {}, {}
    for index, name in enumerate(kernel.arg_names):
        if name in constants:
            signature[name], values[index,] = "constexpr", constants[name]
            continue
        if tiles and name in tiles:
            rows, columns = tiles[name]
            signature[name] = f"tensordesc<{TYPES[dtype][1:]}[{rows},{columns}]>"
            continue
        pointer = TYPES[dtype] if name in _POINTERS else "*i32"
        signature[name] = pointer if name.endswith("_ptr") else "i32"
        if name.endswith(("_ptr", "_stride")):
            attributes[index,] = [["tt.divisibility", 16]]
    source = triton.compiler.ASTSource(kernel, signature, values, attributes)
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": warps})


def product(config, size, dtype, *, transposed):
    """Return the product kernel for a config of the launches."""
    from orthosparse.operators import block_kernels

    inner = min(size, config.inner)
    constants = {"TMA": config.tma, "TRANSPOSED": transposed, "BIAS": True, "EVEN": True, "BLOCK": size, "INNER": inner}
    constants |= {"TOKENS": config.tokens, "PRECISION": "tf32", "STAGES": config.stages}
    tiles = {"x_ptr": (config.tokens, inner), "values_ptr": (inner, size) if transposed else (size, inner)}
    return compiled(block_kernels.block_product, dtype, constants, config.warps, tiles if config.tma else None)


def weight_grad(config, size, dtype):
    """Return the weight gradient's kernel for a config of the launches."""
    from orthosparse.operators import block_kernels

    constants = {"BLOCK": size, "TOKENS": config.tokens, "PRECISION": "tf32", "STAGES": config.stages}
    if config.tma:
        tiles = {"g_ptr": (config.tokens, size), "x_ptr": (config.tokens, size)}
        return compiled(block_kernels.block_pair_weight_grad, dtype, constants, config.warps, tiles)
    constants |= {"EVEN": True, "GROUP": GROUPS[size]}
    return compiled(block_kernels.block_weight_grad, dtype, constants, config.warps)


def add_shares():
    """Return the kernel that adds up the shares of a weight gradient."""
    from orthosparse.operators import block_kernels, block_launches

    return compiled(block_kernels.add_shares, "bfloat16", {"LENGTH": block_launches._LENGTH}, 4)
