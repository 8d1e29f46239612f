"""Fill ONE weight in place with an exactly orthogonal start, dense or sparse.

The sparse functions return the mask of active entries, a bool tensor of the weight's shape and device; it is never
``weight != 0``, as an active entry may start at zero. The dense ones return the weight.

All of them draw in float64 on the CPU, multiply by `gain`, and cast to the weight's dtype and device once, so the same
state of `generator` gives the same numbers everywhere; without a generator the operating system gives a fresh seed.
Weights may be float16, bfloat16, float32 or float64, on any device, with any strides, and may require gradients. Where
an argument is refused (ValueError, TypeError) the weight is as it was.

A matrix is n x m with orthonormal rows or columns, whichever are fewer. A convolution weight is
(out, in / groups, *kernel), or (in, out / groups, *kernel) when transposed; each group gets an orthogonal map of its
own, and with stride 1 and circular padding the convolution is then orthogonal as a whole: it keeps norms where it has
as many outputs as inputs or more, and its adjoint does where it has fewer.
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
