"""How far from orthogonal rounding can leave a weight."""

import math

import torch

from orthosparse.orthogonality import orthogonality_score

# Rounding of a long chain of float64 operations: measured scores are 1e-14 for rotations (300 rows), 1e-13 for dense
# kernels (512 channels, five QRs), and grow about like the side.
_FLOAT64_FLOOR, _FLOAT64_GROWTH = 1e-12, 1e-15


def rounding_floor(weight):
    """Return the largest score that rounding to the weight's dtype can give an orthogonal weight.

    Rounding moves W to W + D with |D| <= u |W|, u = eps / 2 entry by entry, and W has as much mass as orthonormal rows:
    ||W||_F^2 = m, the smaller side summed over the groups. So the score is at most 2 ||D||_F + ||D||_F^2, close to
    eps sqrt(m); it is doubled for the entries that fall among the subnormals. m is bounded by the first side here.
    """
    eps = torch.finfo(weight.dtype).eps if weight.is_floating_point() else 0.0
    return max(2 * eps * math.sqrt(weight.shape[0]), _FLOAT64_FLOOR + _FLOAT64_GROWTH * weight.shape[0])


def is_orthogonal(weight, *, tol=None, **options):
    """Return whether the score is at most `tol`, by default what rounding to the weight's dtype explains."""
    return orthogonality_score(weight, **options) <= (rounding_floor(weight) if tol is None else tol)
