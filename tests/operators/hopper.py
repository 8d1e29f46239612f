"""What Triton makes of the block kernels for a Hopper GPU, which need not be there."""

from orthosparse.operators.block_plan import GROUPS

SHARED = 227 * 1024  # bytes of a multiprocessor that one program may have
TYPES = {"bfloat16": "*bf16", "float16": "*fp16", "float32": "*fp32"}
_POINTERS = ("x_ptr", "g_ptr", "values_ptr", "bias_ptr", "y_ptr", "out_ptr")


def compiled(kernel, dtype, constants, warps):
    """Return a kernel compiled for pointers to `dtype`, and strides that are multiples of 16."""
    import triton
    from triton.backends.compiler import GPUTarget

    signature, values, attributes = {}, {}, {}
    for place, name in enumerate(kernel.arg_names):
        if name in constants:
            signature[name], values[place,] = "constexpr", constants[name]
            continue
        pointer = TYPES[dtype] if name in _POINTERS else "*i32"
        signature[name] = pointer if name.endswith("_ptr") else "i32"
        if name.endswith(("_ptr", "_stride")):
            attributes[place,] = [["tt.divisibility", 16]]
    source = triton.compiler.ASTSource(kernel, signature, values, attributes)
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": warps})


def product(config, size, dtype, *, transposed):
    """Return the product kernel for a config of the launches."""
    from orthosparse.operators import block_kernels

    constants = {"TRANSPOSED": transposed, "BIAS": True, "EVEN": True, "BLOCK": size, "INNER": min(size, config.inner)}
    constants |= {"TOKENS": config.tokens, "PRECISION": "tf32", "STAGES": config.stages}
    return compiled(block_kernels.block_product, dtype, constants, config.warps)


def weight_grad(config, size, dtype):
    """Return the weight gradient's kernel for a config of the launches."""
    from orthosparse.operators import block_kernels

    constants = {"EVEN": True, "BLOCK": size, "GROUP": GROUPS[size], "TOKENS": config.tokens, "PRECISION": "tf32"}
    return compiled(block_kernels.block_weight_grad, dtype, constants | {"STAGES": config.stages}, config.warps)
