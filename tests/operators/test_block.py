"""Products with block-sparse weights against dense ones."""

from pathlib import Path

import hypothesis
import hypothesis.strategies as st
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from interpreter import check_interpreted, needs_interpreter, needs_triton
from operators import hopper
from operators.blocks import draw
from orthosparse.operators import SIZES, block_linear, has_kernel
from orthosparse.operators import block_launches as launches

F64 = {"dtype": torch.float64}


@needs_interpreter
def test_by_the_interpreter_kernels_compute_what_the_dense_product_does():
    check_interpreted(Path(__file__).with_name("interpreted.py"), 36)


@needs_triton
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("size", SIZES)
def test_compiled_for_hopper_loads_are_asynchronous_and_nothing_spills(size, dtype, tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    kernels = [hopper.product(launches._PRODUCT[1], size, dtype, transposed=transposed) for transposed in (False, True)]
    for kernel in [*kernels, hopper.weight_grad(launches._WEIGHT_GRAD[1], size, dtype)]:
        ptx = kernel.asm["ptx"]
        assert "cp.async" in ptx
        assert "ld.local" not in ptx
        assert kernel.metadata.shared <= hopper.SHARED or size == 128
        if dtype == "bfloat16":
            assert "wgmma.mma_async" in ptx, "Hopper's matrix units"


@needs_triton
@pytest.mark.parametrize("size", SIZES)
def test_compiled_for_hopper_tiles_of_tensor_descriptors_are_copied_by_the_gpu_and_nothing_spills(
    size, tmp_path, monkeypatch
):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    products = [config for config in launches._PRODUCT if config.tma]
    kernels = [
        hopper.product(config, size, "bfloat16", transposed=each) for config in products for each in (False, True)
    ]
    if launches.GROUPS[size] == 2:
        kernels += [hopper.weight_grad(config, size, "bfloat16") for config in launches._WEIGHT_GRAD if config.tma]
    for kernel in kernels:
        ptx = kernel.asm["ptx"]
        assert "cp.async.bulk.tensor" in ptx
        assert "wgmma.mma_async" in ptx
        assert "ld.local" not in ptx
        assert kernel.metadata.shared <= hopper.SHARED


@needs_triton
def test_the_sum_of_shares_compiles_for_hopper(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    assert "ld.local" not in hopper.add_shares().asm["ptx"]


@needs_triton
@pytest.mark.parametrize("size", SIZES)
def test_the_first_config_runs_on_smaller_gpus(size, tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    first = launches._PRODUCT[0]
    kernels = [hopper.product(first, size, "float32", transposed=transposed) for transposed in (False, True)]
    for kernel in [*kernels, hopper.weight_grad(launches._WEIGHT_GRAD[0], size, "float32")]:
        assert kernel.metadata.shared <= 99 * 1024


@hypothesis.given(
    grid=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    size=st.sampled_from((16, 32)),
    density=st.floats(0, 1),
    tokens=st.lists(st.integers(0, 5), max_size=3),
    seed=st.integers(0, 99),
)
@hypothesis.settings(max_examples=40)
def test_result_and_gradients_are_those_of_the_dense_product(grid, size, density, tokens, seed):
    generator = torch.Generator().manual_seed(seed)
    weight = draw(grid, size, density, generator, **F64)
    x = torch.randn(*tokens, weight.shape[1], generator=generator, **F64)
    bias = torch.randn(weight.shape[0], generator=generator, **F64)
    leaves = [leaf.requires_grad_() for leaf in (x, weight.values, bias)]
    y = block_linear(x, weight.values, bias, weight.plan, weight.shape)
    expected = torch.nn.functional.linear(x, weight.dense(), bias)
    torch.testing.assert_close(y, expected, rtol=1e-12, atol=1e-12)
    grad = torch.randn(y.shape, generator=generator, **F64)
    found, right = (torch.autograd.grad(out, leaves, grad, retain_graph=True) for out in (y, expected))
    torch.testing.assert_close(found, right, rtol=1e-12, atol=1e-12)


def test_gradients_of_first_and_second_order_are_right(generator):
    weight = draw((2, 3), 16, 0.5, generator, **F64)
    x = torch.randn(2, weight.shape[1], generator=generator, **F64)
    bias = torch.randn(weight.shape[0], generator=generator, **F64)
    leaves = [leaf.requires_grad_() for leaf in (x, weight.values, bias)]

    def f(x, values, bias):
        return block_linear(x, values, bias, weight.plan, weight.shape)[:, :20]

    assert torch.autograd.gradcheck(f, leaves, fast_mode=True)
    assert torch.autograd.gradgradcheck(f, leaves, fast_mode=True)


def test_the_operators_keep_torchs_rules(generator):
    weight = draw((2, 3), 16, 0.5, generator)
    x = torch.randn(4, weight.shape[1], generator=generator, requires_grad=True)
    values, ops = weight.values.requires_grad_(), torch.ops.orthosparse
    sizes = *values.shape[:2], *weight.shape
    grad = torch.randn(4, weight.shape[0], generator=generator, requires_grad=True)
    bias = torch.randn(weight.shape[0], generator=generator, requires_grad=True)
    torch.library.opcheck(ops.block_linear, (x, values, bias, weight.plan, *sizes))
    torch.library.opcheck(ops.block_input_grad, (grad, values, weight.plan, *sizes))
    torch.library.opcheck(ops.block_weight_grad, (grad, x, weight.plan, *sizes))


def test_autocast_computes_in_its_type_and_grads_are_in_that_of_the_leaves(generator):
    weight = draw((2, 3), 16, 0.5, generator)
    x = torch.randn(4, weight.shape[1], generator=generator)
    values = weight.values.requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        y = block_linear(x, values, None, weight.plan, weight.shape)
    assert y.dtype == torch.bfloat16
    y.float().sum().backward()
    assert values.grad.dtype == torch.float32


def test_a_backward_pass_inside_autocast_stays_in_the_type_of_its_forward_pass(generator):
    weight = draw((2, 3), 16, 0.5, generator)
    x = torch.randn(4, weight.shape[1], generator=generator, requires_grad=True)
    y = block_linear(x, weight.values.requires_grad_(), None, weight.plan, weight.shape)
    with torch.autocast("cpu", torch.bfloat16):
        y.sum().backward()
    torch.testing.assert_close(x.grad, weight.dense().detach().sum(0).expand(4, -1), rtol=1e-5, atol=1e-5)


def test_flops_are_those_of_the_active_blocks(generator):
    weight = draw((2, 3), 16, 0.5, generator)
    x = torch.randn(7, weight.shape[1], generator=generator, requires_grad=True)
    with FlopCounterMode(display=False) as counter:
        block_linear(x, weight.values.requires_grad_(), None, weight.plan, weight.shape).sum().backward()
    assert counter.get_total_flops() == 3 * 2 * 7 * weight.values.numel()


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("size", SIZES)
def test_on_a_gpu_kernels_compute_what_the_dense_product_does(size, dtype, generator):
    from operators.interpreted import check

    assert has_kernel(torch.device("cuda"), dtype)
    for grid, tokens in (((3, 5), (70,)), ((9, 8), (3, 333)), ((8, 16), (2048,)), ((2, 2), (0,))):
        check(grid, size, tokens, dtype, generator, device="cuda", density=0.3)


@pytest.mark.gpu
@pytest.mark.parametrize("size", SIZES)
def test_on_a_gpu_configs_with_tensor_descriptors_compute_what_the_dense_product_does(size, generator, monkeypatch):
    from operators.interpreted import check

    if torch.cuda.get_device_capability()[0] < 9:
        pytest.skip("tensor descriptors need a Hopper GPU")
    for number in range(4):
        seen = []

        def nth(key, configs, launch, number=number, seen=seen):
            wanted = [config for config in configs if config.tma] or configs[:1]
            seen.append(wanted[number % len(wanted)])
            return seen[-1]

        monkeypatch.setattr(launches, "fastest", nth)
        monkeypatch.setattr(launches, "chosen", {})
        check((9, 8), size, (3, 333), torch.bfloat16, generator, device="cuda", density=0.3)
        assert [config.tma for config in seen] == [True, True, launches.GROUPS[size] == 2]


@pytest.mark.gpu
def test_on_a_gpu_results_repeat_bit_by_bit(generator):
    weight = draw((16, 16), 64, 0.2, generator, torch.bfloat16, "cuda")
    x = torch.randn(4096, 1024, generator=generator).to("cuda", torch.bfloat16).requires_grad_()
    values = weight.values.requires_grad_()
    runs = []
    for _ in range(3):
        y = block_linear(x, values, None, weight.plan, weight.shape)
        runs.append([y, *torch.autograd.grad(y, [x, values], torch.ones_like(y))])
    assert all(torch.equal(a, b) for run in runs[1:] for a, b in zip(runs[0], run, strict=True))


@pytest.mark.gpu
def test_a_captured_graph_follows_blocks_that_move(generator):
    from orthosparse.operators import plan_of

    weight = draw((8, 8), 64, 0.3, generator, torch.bfloat16, "cuda")
    x = torch.randn(512, 512, generator=generator).to("cuda", torch.bfloat16)
    block_linear(x, weight.values, None, weight.plan, weight.shape)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = block_linear(x, weight.values, None, weight.plan, weight.shape)
    weight.active = weight.active.flip(0, 1)
    rows, columns = weight.active.nonzero(as_tuple=True)
    weight.plan.copy_(plan_of(rows, columns, grid=(8, 8), size=64))
    graph.replay()
    torch.testing.assert_close(y.float(), x.float() @ weight.dense().float().T, rtol=2e-2, atol=2e-2)
