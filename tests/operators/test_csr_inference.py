"""Products of entries for inference: those of dense layers, compiled and exported, without gradients."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from orthosparse.deploying.modules import EntriesConv
from orthosparse.operators import csr_inference, csr_tables, has_convolutions


def entries(weight):
    rows, columns = weight.nonzero(as_tuple=True)
    row_starts, columns, *_ = csr_tables(rows, columns, tuple(weight.shape))
    return weight[weight != 0][None], row_starts, columns


def drawn(seed, outputs, inputs, leading, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(outputs, inputs, generator=generator, dtype=dtype)
    weight *= torch.rand(outputs, inputs, generator=generator) < 0.3
    bias = torch.randn(outputs, generator=generator, dtype=dtype)
    return torch.randn(*leading, inputs, generator=generator, dtype=dtype), weight, bias


@given(
    seed=st.integers(0, 2**16),
    outputs=st.integers(1, 20),
    inputs=st.integers(1, 20),
    leading=st.lists(st.integers(1, 20), max_size=3),
    features_first=st.booleans(),
    biased=st.booleans(),
)
def test_the_product_is_that_of_the_dense_layer(seed, outputs, inputs, leading, features_first, biased):
    x, weight, bias = drawn(seed, outputs, inputs, leading)
    values, *tables = entries(weight)
    y = csr_inference(x, values, bias if biased else None, *tables, inputs=inputs, features_first=features_first)
    torch.testing.assert_close(y, functional.linear(x, weight, bias if biased else None))
    assert features_first or y.is_contiguous()


@pytest.mark.skipif(not has_convolutions(), reason="the kernel was not built")
def test_the_operator_of_convolutions_agrees_with_its_fake_and_compiles(generator):
    layer = nn.Conv2d(3, 4, 3, padding=1, stride=2).requires_grad_(False)
    module, x = EntriesConv(layer), torch.randn(2, 3, 9, 8, generator=generator)
    arguments = (x, module.values, module.bias, module.row_starts, module.columns, *map(list, module.geometry))
    operator = torch.ops.orthosparse.csr_convolution.default
    torch.library.opcheck(operator, arguments, test_utils=["test_schema", "test_faketensor"])
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    with torch.inference_mode():
        torch.testing.assert_close(compiled(x), layer(x))


@pytest.mark.parametrize("features_first", [False, True])
def test_the_operator_agrees_with_its_fake_and_compiles(features_first):
    x, weight, bias = drawn(0, 12, 9, [5])
    values, *tables = entries(weight)
    operator = torch.ops.orthosparse.csr_inference.default
    torch.library.opcheck(
        operator, (x, values, bias, *tables, features_first), test_utils=["test_schema", "test_faketensor"]
    )

    def layer(x):
        return csr_inference(x, values, bias, *tables, inputs=9, features_first=features_first).relu()

    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    with torch.inference_mode():
        torch.testing.assert_close(compiled(x), layer(x))


def test_gradients_are_refused():
    x, weight, bias = drawn(0, 3, 4, [2])
    values, *tables = entries(weight)
    with pytest.raises(RuntimeError, match="no gradients"):
        csr_inference(x.requires_grad_(), values, bias, *tables, inputs=4, features_first=False)


def test_inputs_that_do_not_fit_are_named():
    x, weight, bias = drawn(0, 3, 4, [2])
    values, *tables = entries(weight)
    with pytest.raises(ValueError, match=r"x: expected shape \[..., 4\]"):
        csr_inference(x[:, 1:], values, bias, *tables, inputs=4, features_first=False)
    with pytest.raises(TypeError, match="x: expected the type of the weight"):
        csr_inference(x.float(), values, bias, *tables, inputs=4, features_first=False)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_on_a_gpu_the_product_is_that_of_torchs_csr_tensors(dtype):
    x, weight, bias = (each.cuda() for each in drawn(0, 64, 48, [5, 7], dtype))
    values, *tables = entries(weight)
    y = csr_inference(x, values, bias, *tables, inputs=48, features_first=False)
    exact, sizes = (
        functional.linear(*(change(each.double()) for each in (x, weight, bias))) for change in (torch.clone, torch.abs)
    )
    rounding = 2 * torch.finfo(dtype).eps + 48 * torch.finfo(torch.float32).eps  # of the results, and of the sums
    assert bool(((y.double() - exact).abs() <= rounding * sizes).all())


def test_under_autocast_the_weight_keeps_its_type():
    x, weight, bias = drawn(0, 3, 4, [2], torch.float32)
    values, *tables = entries(weight)
    with torch.autocast("cpu", torch.bfloat16):
        y = csr_inference(x.bfloat16(), values, bias, *tables, inputs=4, features_first=False)
    torch.testing.assert_close(y, functional.linear(x.bfloat16().float(), weight, bias))
