"""The compiled products with single entries, on every instruction set that this machine has."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from orthosparse import SparseConv, SparseLinear
from orthosparse.hardware import on_threads
from orthosparse.operators import csr_kernel, csr_tables

pytestmark = pytest.mark.skipif(not csr_kernel.is_built(), reason="the kernel was not built")
SETS = range(csr_kernel.instruction_sets() if csr_kernel.is_built() else 0)


def draw(shape, density, seed, dtype):
    generator = torch.Generator().manual_seed(seed)
    mask = torch.rand(shape, generator=generator) < density
    rows, columns = mask.nonzero(as_tuple=True)
    values = torch.randn(1, len(rows), generator=generator, dtype=dtype)
    weight = torch.zeros(shape, dtype=dtype)
    weight[mask] = values[0]
    return generator, mask, weight, values, csr_tables(rows, columns, shape)


@pytest.mark.parametrize("instructions", SETS)
@given(
    shape=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    density=st.floats(0, 1),
    batch=st.integers(0, 300),
    seed=st.integers(0, 99),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
@settings(max_examples=60)
def test_results_are_those_of_dense_products(instructions, shape, density, batch, seed, dtype):
    generator, mask, weight, values, (starts, columns, *transposed) = draw(shape, density, seed, dtype)
    rtol, atol = (1e-12, 1e-12) if dtype == torch.float64 else (1e-4, 1e-4)
    x, grad = (torch.randn(size, batch, generator=generator, dtype=dtype) for size in shape[::-1])
    bias = torch.randn(shape[0], generator=generator, dtype=dtype)
    y = csr_kernel.product(x, values, bias, starts, columns, instructions=instructions)
    torch.testing.assert_close(y, weight @ x + bias[:, None], rtol=rtol, atol=atol)
    x_grad = csr_kernel.product(grad, values, None, *transposed, instructions=instructions)
    torch.testing.assert_close(x_grad, weight.T @ grad, rtol=rtol, atol=atol)
    found = csr_kernel.sampled(grad, x, starts, columns, instructions=instructions)
    torch.testing.assert_close(found[0], (grad @ x.T)[mask], rtol=rtol, atol=atol)


@pytest.mark.parametrize("size", [2, 4])
def test_values_and_biases_of_another_size_are_refused_since_the_kernel_would_read_past_their_end(size):
    linear, convolution = SparseLinear(8, 3, entries=3), SparseConv(4, 3, (3, 3), entries=3)
    for layer, x in ((linear, torch.ones(1, 8)), (convolution, torch.ones(1, 4, 3, 3))):
        for name, own in (("values", (1, 3)), ("bias", (3,))):
            before = getattr(layer, name)
            setattr(layer, name, nn.Parameter(torch.ones(*own[:-1], size)))
            with pytest.raises(ValueError, match=f"{name}: expected 3, one for each .*; got {size}"):
                layer(x)
            setattr(layer, name, before)
        layer(x).sum().backward()


@pytest.mark.parametrize("batch", [1, 5, 33, 128, 200])
def test_the_bits_do_not_depend_on_the_number_of_threads(batch):
    generator, _, _, values, (starts, columns, *transposed) = draw((900, 700), 0.5, 0, torch.float32)
    values = values * torch.randn(values.shape, generator=generator).exp()
    x, grad = torch.randn(700, batch, generator=generator), torch.randn(900, batch, generator=generator)
    found = {}
    for threads in (1, 2, 8):
        with on_threads(threads):
            found[threads] = [
                csr_kernel.product(x, values, None, starts, columns),
                csr_kernel.product(grad, values, None, *transposed),
                csr_kernel.sampled(grad, x, starts, columns),
            ]
    for threads in (2, 8):
        assert all(map(torch.equal, found[1], found[threads]))


def test_a_column_of_ones_sums_rows_without_rounding():
    """Whole numbers of float32 have one sum in every order: by hand."""
    values = torch.arange(1.0, 7.0)[None]
    starts, columns, *_ = csr_tables(torch.tensor([0, 0, 2, 2, 2, 2]), torch.arange(6) % 4, (3, 6))
    y = csr_kernel.product(torch.ones(6, 3), values, torch.tensor([0.5, 0.25, 0.0]), starts, columns)
    assert y.tolist() == [[3.5] * 3, [0.25] * 3, [18.0] * 3]


def test_numbers_of_another_type_are_refused():
    starts, columns, *_ = csr_tables(torch.tensor([0]), torch.tensor([0]), (1, 1))
    with pytest.raises(TypeError, match="expected the type of the weight"):
        csr_kernel.product(torch.ones(1, 1, dtype=torch.float64), torch.ones(1, 1), None, starts, columns)


def test_instructions_that_the_machine_lacks_are_refused():
    starts, columns, *_ = csr_tables(torch.tensor([0]), torch.tensor([0]), (1, 1))
    with pytest.raises(ValueError, match="instructions"):
        csr_kernel.product(torch.ones(1, 1), torch.ones(1, 1), None, starts, columns, instructions=len(SETS))


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_pictures_are_padded_and_sorted_by_remainders(dims, generator):
    sizes, step, padding = (5, 7, 4)[:dims], (2, 1, 3)[:dims], (1, 2, 0)[:dims]
    rooms = [-(-(size + 2 * pad) // each) for size, pad, each in zip(sizes, padding, step, strict=True)]
    x = torch.randn(2, *sizes, 3, generator=generator).movedim(-1, 1)  # channels last in memory
    found = csr_kernel.arrange(x, step=step, padding=padding, rooms=rooms, before=2, after=3)
    ends = [(pad, room * each - size - pad) for size, pad, each, room in zip(sizes, padding, step, rooms, strict=True)]
    padded = torch.nn.functional.pad(x, [end for pair in reversed(ends) for end in pair])
    split = padded.reshape(2, 3, *(size for pair in zip(rooms, step, strict=True) for size in pair))
    order = 1, *range(3, 3 + 2 * dims, 2), 0, *range(2, 2 + 2 * dims, 2)
    assert torch.equal(found[2:-3], split.permute(order).flatten())
    assert not found[:2].any()
    assert not found[-3:].any()


def test_where_the_kernel_was_not_built_the_error_says_what_to_do(monkeypatch):
    monkeypatch.setattr(csr_kernel, "is_built", lambda: False)
    with pytest.raises(RuntimeError, match=r"built without a compiler \(orthosparse\.expand"):
        csr_kernel._kernel.__wrapped__()
