"""The largest singular values of a batch of matrices known by their products, and estimates of the mean ones.

A block of random orthonormal vectors U_1 on the smaller side grows into an orthonormal basis U of the space that
M^T M, (M^T M)^2, ... make of it (block Golub-Kahan-Lanczos, with every new vector orthogonalized against all earlier
ones, twice). The eigenvalues s^2 of T = U^T M^T M U = Q S^2 Q^T give Ritz values s, the largest of which converge fast
to the largest singular values of M. The same basis is a Gauss quadrature rule: with u_i the i-th vector of U_1,
u_i^T f(M^T M) u_i = sum_j f(s_j^2) Q_ij^2 up to the rule's error (Golub and Meurant 2010), and its mean over random u_i
is the mean of f over the spectrum: the stochastic Lanczos quadrature of Ubaru, Chen and Saad (2017). For the square
root Gauss is too large, and the Gauss-Radau rule with a node at 0 too small, so the two enclose the value. The mean
of |M u|^2 costs one product a vector and goes up and down with it, so more vectors are spent on that alone, and the
deviation of the first ones from it is taken out (a control variate).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from orthosparse.progress import Reporter, silent

Product = Callable[[Tensor], Tensor]  # [number, batch, side] -> [number, batch, side]

_SETTLED = 3e-3  # relative width of the quadrature's enclosure of the mean that ends the search
_OTHERS = 4  # vectors per probe whose |M u|^2 alone is measured
_SMALL = 512  # a side of which all values are found, as sampling their mean would take as many products
_TINY = 100  # times machine epsilon: squares below it are rounding


@dataclass(frozen=True, eq=False)
class Ritz:
    """The spectral estimates that a basis of k vectors gives for each matrix of the batch.

    Attributes:
        values: [batch, k], in decreasing order.
        residuals: [batch, k]: M has a singular value within this distance of each of `values`.
        upper: [batch, probes]: Gauss's value of u^T (M^T M)^(1/2) u for each probe u.
        lower: [batch, probes]: Gauss-Radau's value.
        squares: [batch, probes or more]: |M u|^2, for the probes and then for other vectors.
        side: the smaller side of M: the number of singular values.
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
        """Return by how much the quadrature may be off, [batch]; of a whole basis, what rounding does to small values.

        A rounding of M^T M by d moves a value s by d / 2 s, or by sqrt(d) where it is smaller than that.
        """
        if not self.complete:
            return (self.upper - self.lower).mean(1).abs() / 2
        moved = torch.finfo(self.values.dtype).eps * self.values[:, :1].square()
        return (moved / (2 * self.values).clamp_min(torch.finfo(moved.dtype).tiny)).minimum(moved.sqrt()).mean(1)

    def sampling_error(self) -> Tensor:
        """Return the standard error that the choice of the vectors gives the mean, [batch]."""
        if self.complete:
            return torch.zeros_like(self.upper[:, 0])
        squares = self.squares[:, : self.upper.shape[1]]
        residuals = (self.upper + self.lower) / 2 - self._slope().unsqueeze(1) * squares
        return torch.hypot(self._error_of_mean(residuals), self._slope() * self._error_of_mean(self.squares))

    def _error_of_mean(self, samples: Tensor) -> Tensor:
        """Orthogonal vectors are drawn without replacement, from a basis of the side."""
        number = samples.shape[1]
        deviation: Tensor = samples.std(1)
        return deviation * math.sqrt((1 - number / self.side) / number)

    def _slope(self) -> Tensor:
        """Return the slope of the regression of the probes' roots on their squares."""
        roots, squares = (self.upper + self.lower) / 2, self.squares[:, : self.upper.shape[1]]
        roots, squares = roots - roots.mean(1, keepdim=True), squares - squares.mean(1, keepdim=True)
        return (roots * squares).sum(1) / squares.square().sum(1).clamp_min(torch.finfo(squares.dtype).tiny)


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
    """Return the Ritz values of M after `steps` blocks, or once `count` are known to `tolerance` and the mean settled.

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
        result = _rayleigh_ritz(basis, images, probes=probes, inner=inner)
        if result.complete or _is_enough(result, count, tolerance):
            break
        report("singular_values", step, steps + 1)
        block = _orthonormal(image[:, :, : side - basis.shape[2]], basis)
    if result.complete:
        return result
    others = _orthonormal(draw(min(_OTHERS * probes, side - probes)), first)
    more = forward(others.permute(2, 0, 1)).square().sum(2).mT
    return replace(result, squares=torch.cat([result.squares, more], 1))


def _is_enough(result: Ritz, count: int, tolerance: float) -> bool:
    known = result.errors(count) <= tolerance * result.values[:, :1]
    settled = result.enclosure() <= torch.maximum(result.sampling_error() / 2, _SETTLED * result.mean())
    possible = result.side > _SMALL and result.values.shape[1] > count
    return possible and bool(known.all()) and bool(settled.all())


def _rayleigh_ritz(basis: Tensor, images: Tensor, *, probes: int, inner: int) -> Ritz:
    """Return the estimates from M^T M projected on the basis, whose first `inner` vectors precede the last block.

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
    known = squares > _TINY * eps * squares[:, -1:]  # what is below is rounding, and its direction too
    factor = torch.where(known, squares.clamp_min(torch.finfo(squares.dtype).tiny).rsqrt(), 0).unsqueeze(2)
    _, values, rows = torch.linalg.svd(factor * (eigenvectors.mT @ projected[:, :inner]), full_matrices=False)
    diagonal: Tensor = (rows.mT.square() * values.unsqueeze(1)).sum(2)
    return diagonal


def _orthonormal(vectors: Tensor, basis: Tensor) -> Tensor:
    """Make `vectors` [batch, side, number] orthonormal, to each other and to `basis`.

    Where one lies in the basis up to rounding, the space has closed (an isometry's does so at once). What is left of it
    is then noise, which opens a new space: that is how values that occur several times are found several times. The
    third round makes that noise orthogonal.
    """
    vectors = _unit(vectors)
    for _ in range(3):
        vectors = torch.linalg.qr(vectors - basis @ (basis.mT @ vectors)).Q
    return vectors


def _unit(vectors: Tensor) -> Tensor:
    lengths: Tensor = torch.linalg.vector_norm(vectors, dim=1, keepdim=True)
    return vectors / lengths.clamp_min(torch.finfo(vectors.dtype).tiny)
