"""Products with weights of single entries against dense ones."""

import hypothesis
import hypothesis.strategies as st
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from orthosparse.operators import csr_linear, csr_tables


def draw(shape, density, generator, dtype=torch.float64):
    mask = torch.rand(shape, generator=generator) < density
    if min(shape) > 1:
        mask[0], mask[:, -1] = False, False
    rows, columns = mask.nonzero(as_tuple=True)
    return torch.randn(1, len(rows), generator=generator, dtype=dtype), mask, csr_tables(rows, columns, shape)


def dense_of(values, mask):
    whole = values.new_zeros(mask.shape)
    whole[mask] = values[0]
    return whole


@hypothesis.given(
    shape=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    density=st.floats(0, 1),
    tokens=st.lists(st.integers(0, 5), max_size=3),
    seed=st.integers(0, 99),
)
@hypothesis.settings(max_examples=60)
def test_result_and_gradients_are_those_of_the_dense_product(shape, density, tokens, seed):
    generator = torch.Generator().manual_seed(seed)
    values, mask, tables = draw(shape, density, generator)
    x = torch.randn(*tokens, shape[1], generator=generator, dtype=torch.float64)
    bias = torch.randn(shape[0], generator=generator, dtype=torch.float64)
    leaves = [leaf.requires_grad_() for leaf in (x, values, bias)]
    y = csr_linear(x, values, bias, *tables)
    expected = torch.nn.functional.linear(x, dense_of(values, mask), bias)
    torch.testing.assert_close(y, expected, rtol=1e-12, atol=1e-12)
    grad = torch.randn(y.shape, generator=generator, dtype=torch.float64)
    found, right = (torch.autograd.grad(out, leaves, grad, retain_graph=True) for out in (y, expected))
    torch.testing.assert_close(found, right, rtol=1e-12, atol=1e-12)


def test_gradients_of_first_and_second_order_are_right(generator):
    values, _, tables = draw((5, 7), 0.4, generator)
    x, bias = (torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in ((3, 2, 7), (5,)))
    leaves = [leaf.requires_grad_() for leaf in (x, values, bias)]

    def f(x, values, bias):
        return csr_linear(x, values, bias, *tables)

    assert torch.autograd.gradcheck(f, leaves)
    assert torch.autograd.gradgradcheck(f, leaves)


def test_the_operators_keep_torchs_rules(generator):
    values, _, tables = draw((5, 7), 0.4, generator, torch.float32)
    x, grad, bias = (
        torch.randn(*shape, generator=generator, requires_grad=True) for shape in ((3, 2, 7), (3, 2, 5), (5,))
    )
    values.requires_grad_()
    ops = torch.ops.orthosparse
    torch.library.opcheck(ops.csr_linear, (x, values, bias, *tables))
    torch.library.opcheck(ops.csr_input_grad, (grad, values, *tables))
    torch.library.opcheck(ops.csr_weight_grad, (grad, x, *tables))


def test_between_sparse_layers_nothing_is_transposed(generator):
    values, _, tables = draw((7, 7), 0.4, generator)
    y = csr_linear(torch.randn(3, 7, generator=generator, dtype=torch.float64), values, None, *tables)
    assert y.relu().T.is_contiguous()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_computes_in_float32(dtype, generator):
    values, mask, tables = draw((5, 7), 0.4, generator, torch.float32)
    x = torch.randn(3, 7, generator=generator).to(dtype)
    with torch.autocast("cpu", dtype):
        y = csr_linear(x, values, None, *tables)
    torch.testing.assert_close(y, x.float() @ dense_of(values, mask).T)


def test_flops_are_those_of_the_active_entries(generator):
    values, _, tables = draw((5, 7), 0.4, generator)
    x = torch.randn(3, 7, generator=generator, dtype=torch.float64, requires_grad=True)
    with FlopCounterMode(display=False) as counter:
        csr_linear(x, values.requires_grad_(), None, *tables).sum().backward()
    assert counter.get_total_flops() == 3 * 2 * 3 * values.numel()


def test_operators_refuse_samples_of_another_width(generator):
    """A kernel would read past their end."""
    values, _, tables = draw((5, 7), 0.4, generator)
    x, grad, wrong = (torch.ones(3, width, dtype=torch.float64) for width in (7, 5, 6))
    ops = torch.ops.orthosparse
    for call in (
        lambda: ops.csr_linear(wrong, values, None, *tables),
        lambda: ops.csr_input_grad(wrong, values, *tables),
        lambda: ops.csr_weight_grad(wrong, x, *tables),
        lambda: ops.csr_weight_grad(grad, wrong, *tables),
    ):
        with pytest.raises(ValueError, match=r"expected shape \[\.\.\., [57]\]; got \(3, 6\)"):
            call()
