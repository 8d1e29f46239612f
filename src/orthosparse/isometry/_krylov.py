"""The largest singular values of a batch of matrices given by their products with vectors, and estimates of the mean.

A block of random orthonormal vectors U_1 on the smaller side grows into an orthonormal basis U of the space that M^T M,
(M^T M)^2, ... make of it (block Golub-Kahan-Lanczos, with every new vector orthogonalized against all earlier ones,
twice). The eigenvalues s^2 of T = U^T M^T M U = Q S^2 Q^T give Ritz values s, the largest of which converge fast to the
largest singular values of M. The same basis is a Gauss quadrature rule: with u_i the i-th vector of U_1, u_i^T f(M^T M)
u_i = sum_j f(s_j^2) Q_ij^2 up to the rule's error (Golub and Meurant 2010), and its mean over random u_i is the mean of
f over the spectrum: the stochastic Lanczos quadrature of Ubaru, Chen and Saad (2017). For the square root Gauss is too
large, and the Gauss-Radau rule with a node at 0 too small, so the two enclose the value. The mean of |M u|^2 costs one
product per vector and is correlated with the estimate, so it is measured on more vectors and serves as a control
variate.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from orthosparse.progress import Reporter, silent

Product = Callable[[Tensor], Tensor]  # [number, batch, side] -> [number, batch, side]

_SETTLED = 3e-3  # relative width of the quadrature's enclosure of the mean at which the iteration stops
_OTHERS = 4  # additional vectors per probe, of which only |M u|^2 is measured
_SMALL = 512  # a side up to which all values are computed: sampling their mean would take as many products
_TINY = 100  # times machine epsilon: squares below it are rounding


@dataclass(frozen=True, eq=False)
class Ritz:
    """Ritz values of each matrix of the batch from a basis of k vectors, and quadrature sums for the mean.

    Attributes:
        values: [batch, k], in descending order.
        residuals: [batch, k]: M has a singular value within this distance of each of `values`.
        upper: [batch, probes]: u^T (M^T M)^(1/2) u for each probe u by Gauss quadrature.
        lower: [batch, probes]: the same by Gauss-Radau quadrature.
        squares: [batch, probes or more]: |M u|^2, of the probes and then of additional vectors.
        side: the smaller side of M, which is the number of singular values.
    """

    values: Tensor
    residuals: Tensor
    upper: Tensor
    lower: Tensor
    squares: Tensor
    side: int

    @property
    def complete(self) -> bool:
        """Whether the basis spans the whole side, so that nothing is sampled."""
        return self.values.shape[1] == self.side

    def errors(self, count: int) -> Tensor:
        """Return estimates of the errors of the `count` largest values: min(residual, residual^2 / gap)."""
        values, residuals = self.values[:, :count], self.residuals[:, :count]
        if self.values.shape[1] <= count:
            return residuals
        gaps = (values - self.values[:, count : count + 1]).clamp_min(torch.finfo(values.dtype).tiny)
        return torch.minimum(residuals, residuals.square() / gaps)

    def mean(self) -> Tensor:
        """Return the mean singular value, [batch]."""
        if self.complete:
            return self.values.mean(1)
        surplus = self.squares.mean(1) - self.squares[:, : self.upper.shape[1]].mean(1)
        return (self.upper + self.lower).mean(1) / 2 + self._slope() * surplus

    def mean_square(self) -> Tensor:
        """Return the mean squared singular value, [batch]."""
        return self.values.square().mean(1) if self.complete else self.squares.mean(1)

    def enclosure(self) -> Tensor:
        """Return a bound of the quadrature's error, [batch]; for a complete basis, that of rounding on small values.

        A rounding of M^T M by d moves a value s by d / 2 s, or by sqrt(d) where it is smaller than that.
        """
        if not self.complete:
            return (self.upper - self.lower).mean(1).abs() / 2
        moved = torch.finfo(self.values.dtype).eps * self.values[:, :1].square()
        return (moved / (2 * self.values).clamp_min(torch.finfo(moved.dtype).tiny)).minimum(moved.sqrt()).mean(1)

    def sampling_error(self) -> Tensor:
        """Return the standard error of the mean from the choice of the vectors, [batch]."""
        if self.complete:
            return torch.zeros_like(self.upper[:, 0])
        own = self.squares[:, : self.upper.shape[1]]
        rest = (self.upper + self.lower) / 2 - self._slope().unsqueeze(1) * own
        return torch.hypot(self._error_of_mean(rest), self._slope() * self._error_of_mean(self.squares))

    def _error_of_mean(self, samples: Tensor) -> Tensor:
        """Return the standard error of the mean; orthogonal vectors are a sample without replacement from a basis."""
        number = samples.shape[1]
        deviation: Tensor = samples.std(1)
        return deviation * math.sqrt((1 - number / self.side) / number)

    def _slope(self) -> Tensor:
        """Return the least-squares slope of the probes' roots against their squares."""
        roots, own = (self.upper + self.lower) / 2, self.squares[:, : self.upper.shape[1]]
        roots, own = roots - roots.mean(1, keepdim=True), own - own.mean(1, keepdim=True)
        return (roots * own).sum(1) / own.square().sum(1).clamp_min(torch.finfo(own.dtype).tiny)


def ritz(
    forward: Product,
    backward: Product,
    side: int,
    like: Tensor,
    *,
    count: int,
    probes: int,
    steps: int,
    tolerance: float,
    generator: torch.Generator,
    report: Reporter = silent,
) -> Ritz:
    """Return the Ritz values of M after `steps` blocks, or once `count` are accurate to `tolerance`, like the mean.

    Args:
        forward: M, from the smaller side.
        backward: M^T.
        side: the smaller side of M.
        like: a tensor [batch, ...] with the dtype and device of the vectors.
    """

    def draw(number: int) -> Tensor:  # on the CPU, so that every device sees the same vectors
        drawn = torch.randn(len(like), side, number, generator=generator, dtype=torch.float64, device="cpu")
        return drawn.to(like)

    first = block = _orthonormal(draw(probes), like.new_zeros(len(like), side, 0))
    basis = images = block[:, :, :0]
    for step in range(1, steps + 1):
        image = backward(forward(block.permute(2, 0, 1))).permute(1, 2, 0)
        inner, basis, images = basis.shape[2], torch.cat([basis, block], 2), torch.cat([images, image], 2)
        estimate = _rayleigh_ritz(basis, images, probes=probes, inner=inner)
        if estimate.complete or _is_enough(estimate, count, tolerance):
            break
        report("singular_values", step, steps + 1)
        block = _orthonormal(image[:, :, : side - basis.shape[2]], basis)
    if estimate.complete:
        return estimate
    others = _orthonormal(draw(min(_OTHERS * probes, side - probes)), first)
    more = forward(others.permute(2, 0, 1)).square().sum(2).mT
    return replace(estimate, squares=torch.cat([estimate.squares, more], 1))


def _is_enough(estimate: Ritz, count: int, tolerance: float) -> bool:
    known = estimate.errors(count) <= tolerance * estimate.values[:, :1]
    settled = estimate.enclosure() <= torch.maximum(estimate.sampling_error() / 2, _SETTLED * estimate.mean())
    possible = estimate.side > _SMALL and estimate.values.shape[1] > count
    return possible and bool(known.all()) and bool(settled.all())


def _rayleigh_ritz(basis: Tensor, images: Tensor, *, probes: int, inner: int) -> Ritz:
    """Return the Ritz values of M^T M projected on the basis, whose last block starts after the first `inner` vectors.

    With u = U q and p = M u / s, the residual of a triple (s, u, p) is |M^T p - s u|; |M u - s p| is 0.
    """
    projected = (basis.mT @ images).double()
    projected = (projected + projected.mT) / 2
    squares, eigenvectors = torch.linalg.eigh(projected)
    values = squares.clamp_min(0).sqrt()
    upper = (eigenvectors[:, :probes].square() * values.unsqueeze(1)).sum(2)
    lower = _radau(projected, inner, torch.finfo(basis.dtype).eps)[:, :probes]
    diagonal = projected.diagonal(dim1=1, dim2=2)[:, :probes]
    values, eigenvectors = values.flip(1).to(basis), eigenvectors.flip(2).to(basis)
    scale = values.clamp_min(torch.finfo(values.dtype).tiny).unsqueeze(1)
    residuals = torch.linalg.vector_norm(
        (images @ eigenvectors) / scale - values.unsqueeze(1) * (basis @ eigenvectors), dim=1
    )
    return Ritz(values, residuals, upper.to(basis), lower.to(basis), diagonal.to(basis), basis.shape[1])


def _radau(projected: Tensor, inner: int, eps: float) -> Tensor:
    """Return the diagonal of the square root of T with its last block replaced so that 0 is an eigenvalue.

    That matrix is F^T F with F = V^T M U, where V is an orthonormal basis of M times the first `inner` vectors. With
    T_inner = Q S^2 Q^T, V = M U_inner Q S^-1, so F = S^-1 Q^T T[:inner].
    """
    if inner == 0:
        return torch.zeros_like(projected[:, :, 0])
    squares, eigenvectors = torch.linalg.eigh(projected[:, :inner, :inner])
    known = squares > _TINY * eps * squares[:, -1:]  # smaller ones are rounding, and so are their directions
    factor = torch.where(known, squares.clamp_min(torch.finfo(squares.dtype).tiny).rsqrt(), 0).unsqueeze(2)
    _, values, rows = torch.linalg.svd(factor * (eigenvectors.mT @ projected[:, :inner]), full_matrices=False)
    diagonal: Tensor = (rows.mT.square() * values.unsqueeze(1)).sum(2)
    return diagonal


def _orthonormal(vectors: Tensor, basis: Tensor) -> Tensor:
    """Make `vectors` [batch, side, number] orthonormal, to each other and to `basis`.

    If a vector lies in the span of the basis up to rounding, the Krylov space is invariant (an isometry's is so at
    once). Its remainder is then noise, which starts a new space: this is how values that occur several times are found
    several times. The third pass makes that noise orthogonal.
    """
    vectors = _unit(vectors)
    for _ in range(3):
        vectors = torch.linalg.qr(vectors - basis @ (basis.mT @ vectors)).Q
    return vectors


def _unit(vectors: Tensor) -> Tensor:
    lengths: Tensor = torch.linalg.vector_norm(vectors, dim=1, keepdim=True)
    return vectors / lengths.clamp_min(torch.finfo(vectors.dtype).tiny)
