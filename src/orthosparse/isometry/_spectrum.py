"""Singular values with their statistics, estimated errors and cost."""

import math
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

_BINS, _WIDTH, _HEIGHT = 40, 320, 80


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Singular values of one matrix per sample, and statistics of those that are not listed.

    It can be used like `values`: ``spectrum[0]``, ``spectrum.shape``, ``numpy.asarray(spectrum)``.

    Attributes:
        values: [batch, k], in descending order. Exact: all min(inputs, outputs) of them, unless k was given;
            matrix-free: the k largest.
        mean: mean of all singular values of all samples. Matrix-free: an estimate, with standard error `mean_error`.
        std: their standard deviation (divisor n); matrix-free: an estimate.
        max: the largest of all.
        min: the smallest of all; matrix-free: an upper bound of it.
        error: estimated error of `values`, relative to the largest one; exact: that of rounding.
        mean_error: standard error of `mean`; 0 if that is exact.
        products: number of products with the Jacobian of the whole batch, or its transpose.
        exact: whether every singular value was computed.
    """

    values: Tensor
    mean: float
    std: float
    max: float
    min: float
    error: float
    mean_error: float = 0.0
    products: int = 0
    exact: bool = True

    @property
    def shape(self) -> torch.Size:
        """The shape of `values`."""
        return self.values.shape

    def __getitem__(self, index: Any) -> Tensor:
        return self.values[index]

    def __len__(self) -> int:
        return len(self.values)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return np.array(self.values.cpu(), dtype=dtype, copy=copy)

    def __repr__(self) -> str:
        batch, count = self.values.shape
        listed = f"{count} values" if self.exact else f"the {count} largest values"
        about = "" if self.exact else f" +- {self.mean_error:.2g}"
        return (
            f"Spectrum({batch} x {listed}: mean {self.mean:.6g}{about}, std {self.std:.3g}, max {self.max:.6g}, "
            f"min {'' if self.exact else '<= '}{self.min:.6g}; {'exact' if self.exact else 'matrix-free'}, "
            f"error {self.error:.1g}, {self.products} products)"
        )

    def cells(self) -> dict[str, str]:
        """Return its row in a table, by column."""
        figures = {name: f"{getattr(self, name):.4g}" for name in ("mean", "std", "max", "min")}
        return {"values": str(self.values.shape[1]), **figures}

    def _repr_html_(self) -> str:
        return f"<div>{_histogram(self.values)}<br/><code>{escape(repr(self))}</code></div>"


def rounding(side: int, dtype: torch.dtype) -> float:
    """Return the relative rounding error of the largest of `side` singular values in `dtype`."""
    return torch.finfo(dtype).eps * math.sqrt(side)


def spectrum_of(values: Tensor, *, dtype: torch.dtype, k: int | None = None, products: int = 0) -> Spectrum:
    """Return the Spectrum of all `values` [batch, side], in descending order, of which the first `k` are listed.

    Args:
        dtype: dtype of the arithmetic or of the weights.
    """
    return Spectrum(
        values=values[:, :k],
        mean=float(values.mean()),
        std=float(values.std(correction=0)),
        max=float(values.max()),
        min=float(values.min()),
        error=rounding(values.shape[1], dtype),
        products=products,
    )


def _histogram(values: Tensor) -> str:
    """Return an inline SVG: a histogram with equal bins from 0 to the largest value."""
    flat = values.detach().cpu().double().flatten()
    top = max(float(flat.max()), torch.finfo(torch.float64).tiny)
    counts = torch.histc(flat, _BINS, 0.0, top)
    bars = "".join(
        f'<rect x="{i * _WIDTH / _BINS:.1f}" y="{_HEIGHT * (1 - share):.1f}" '
        f'width="{_WIDTH / _BINS - 1:.1f}" height="{_HEIGHT * share:.1f}"/>'
        for i, share in enumerate((counts / counts.max()).tolist())
        if share
    )
    labels = f'<text x="0" y="{_HEIGHT + 14}">0</text>'
    labels += f'<text x="{_WIDTH}" y="{_HEIGHT + 14}" text-anchor="end">{top:.4g}</text>'
    style = 'fill="currentColor" font-size="12" font-family="sans-serif"'
    return f'<svg width="{_WIDTH}" height="{_HEIGHT + 18}" {style} role="img">{bars}{labels}</svg>'
