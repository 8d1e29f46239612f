"""Algorithm 1: exactly orthogonal sparse matrices, as products of random Givens rotations.

A matrix starts as [I 0], and pairs of its columns are rotated until it has as many active entries as asked for. A tall
matrix is the transpose of a wide one. The smaller of its two Gram matrices is therefore the identity. The active
entries are known before any value is computed. They are never read off the values, which may be tiny or zero.
"""

from orthosparse.givens.blocks import sample_blocks
from orthosparse.givens.rotations import counts_after, expected_density, expected_rotations, rotate
from orthosparse.givens.sampling import Law, can_hold, has_kernel, partial, sample, sample_batch, sample_csr

__all__ = [
    "Law",
    "can_hold",
    "counts_after",
    "expected_density",
    "expected_rotations",
    "has_kernel",
    "partial",
    "rotate",
    "sample",
    "sample_batch",
    "sample_blocks",
    "sample_csr",
]
