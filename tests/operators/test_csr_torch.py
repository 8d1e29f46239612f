"""Products by torch's CSR tensors, where no kernel was built, against dense ones."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from orthosparse.operators import csr_tables, csr_torch


@pytest.mark.parametrize("autocast", [False, True])
@given(st.integers(1, 9), st.integers(1, 9), st.floats(0, 1), st.integers(1, 5), st.integers(0, 99))
def test_results_are_those_of_dense_products(autocast, rows, columns, density, batch, seed):
    generator = torch.Generator().manual_seed(seed)
    mask = torch.rand(rows, columns, generator=generator) < density
    starts, others, *transposed = csr_tables(*mask.nonzero(as_tuple=True), (rows, columns))
    values = torch.randn(1, len(others), generator=generator)
    weight = torch.zeros(rows, columns)
    weight[mask] = values[0]
    x, grad = torch.randn(columns, batch, generator=generator), torch.randn(rows, batch, generator=generator)
    bias = torch.randn(rows, generator=generator)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        y = csr_torch.product(x, values, bias, starts, others)
        x_grad = csr_torch.product(grad, values, None, *transposed)
        found = csr_torch.sampled(grad, x, starts, others)
    torch.testing.assert_close(y, weight @ x + bias[:, None])
    torch.testing.assert_close(x_grad, weight.T @ grad)
    torch.testing.assert_close(found[0], (grad @ x.T)[mask])
