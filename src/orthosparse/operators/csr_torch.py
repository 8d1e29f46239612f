"""CSR products with torch's CSR tensors, for packages that were built without the compiled kernel."""

import warnings

import torch
from torch import Tensor

from orthosparse.operators.registration import without_autocast

with warnings.catch_warnings():  # torch warns once that its CSR tensors are in beta
    warnings.simplefilter("ignore")
    torch.sparse_csr_tensor([0, 1], [0], [1.0], size=(1, 1))


@without_autocast
def product(
    x: Tensor, values: Tensor, bias: Tensor | None, starts: Tensor, others: Tensor, order: Tensor | None = None
) -> Tensor:
    """Return ``matrix @ x + bias``; as in the compiled kernel."""
    entries = values[0] if order is None else values[0].index_select(0, order)
    # "reduce" selects torch's own kernel, which is a tenth to a third faster than MKL's.
    y: Tensor = torch.sparse.mm(_csr(starts, others, entries, len(x)), x, reduce="sum")
    return y if bias is None else y.add_(bias.unsqueeze(1))


@without_autocast
def sampled(grad: Tensor, x: Tensor, starts: Tensor, others: Tensor) -> Tensor:
    """Return the active entries of ``grad @ x.T``; as in the compiled kernel."""
    pattern = _csr(starts, others, x.new_zeros(len(others)), len(x))
    result: Tensor = torch.sparse.sampled_addmm(pattern, grad, x.T, beta=0.0)
    return result.values()[None]


def _csr(starts: Tensor, others: Tensor, values: Tensor, width: int) -> Tensor:
    size = len(starts) - 1, width
    return torch.sparse_csr_tensor(starts, others, values, size=size, check_invariants=False)
