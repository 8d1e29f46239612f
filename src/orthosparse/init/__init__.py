"""Fill ONE weight in place with an exactly orthogonal start, dense or sparse.

The sparse functions return the mask of active entries, a bool tensor of the weight's shape and device. It is never
``weight != 0``, because an active entry may start at zero. The dense functions return the weight.

All of them draw in float64 on the CPU, multiply by `gain`, and cast once to the weight's dtype and device, so the same
state of `generator` gives the same numbers everywhere. Without a generator, the seed comes from the operating system.
Weights may be float16, bfloat16, float32 or float64, on any device, with any strides, and may require gradients. If a
function raises (ValueError, TypeError), the weight is unchanged.

A matrix is n x m, with orthonormal rows or columns, whichever are fewer. A convolution weight is (out, in / groups,
*kernel), or (in, out / groups, *kernel) if transposed. Each group gets its own orthogonal map. With stride 1 and
circular padding the whole convolution is then orthogonal: it preserves norms if it has at least as many outputs as
inputs, and otherwise its adjoint does.
"""

from orthosparse.init.dense import conv_orthogonal_, delta_orthogonal_
from orthosparse.init.matrices import orthogonal_, sparse_orthogonal_
from orthosparse.init.sparse_delta import sparse_delta_orthogonal_

__all__ = [
    "conv_orthogonal_",
    "delta_orthogonal_",
    "orthogonal_",
    "sparse_delta_orthogonal_",
    "sparse_orthogonal_",
]
