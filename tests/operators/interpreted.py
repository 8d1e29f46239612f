"""What the GPU kernels give against dense products: `test_block` has this run by Triton's interpreter."""

import pytest
import torch

from operators.blocks import draw
from orthosparse.operators import block_launches as launches
from orthosparse.operators import block_linear, has_kernel

# Grids with rows and columns that are empty, longer and shorter than a group of blocks.
GRIDS = [(1, 1), (3, 5), (6, 4)]
TOLERANCES = {torch.float32: 2e-6, torch.bfloat16: 1.2e-2, torch.float16: 1.5e-3}


def check(grid, size, tokens, dtype, generator, *, bias=True, density=0.6, device="cpu"):
    """Compare result and gradients with those of the dense product in float64."""
    assert has_kernel(torch.device(device), dtype)
    weight = draw(grid, size, density, generator, dtype, device)
    x = torch.randn(*tokens, weight.shape[1], generator=generator).to(device, dtype).requires_grad_()
    b = torch.randn(weight.shape[0], generator=generator).to(device, dtype).requires_grad_() if bias else None
    weight.values.requires_grad_()
    y = block_linear(x, weight.values, b, weight.plan, weight.shape)
    grad = torch.randn(y.shape, generator=generator).to(device, dtype)
    y.backward(grad)
    dense, wide, g = weight.dense().detach().double(), x.detach().double(), grad.double()
    expected = [
        (y, wide @ dense.T + (0 if b is None else b.detach().double())),
        (x.grad, g @ dense),
        (weight.values.grad, weight.cut(g.flatten(0, -2).T @ wide.flatten(0, -2))),
    ]
    if b is not None:
        expected.append((b.grad, g.flatten(0, -2).sum(0)))
    for found, right in expected:
        scale = float(right.abs().max()) if right.numel() else 1.0
        torch.testing.assert_close(found.double(), right, rtol=0, atol=TOLERANCES[dtype] * max(scale, 1e-3))


@pytest.mark.parametrize("size", [16, 32, 64, 128])
@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_kernels_compute_what_the_dense_product_does(grid, size, generator):
    check(grid if size < 128 else (2, 3), size, (70,), torch.float32, generator, bias=grid != (3, 5))


def test_float16_accumulates_in_float32(generator):  # Triton's interpreter does not multiply bfloat16
    check((4, 4), 32, (3, 33), torch.float16, generator)


@pytest.mark.parametrize("config", launches._PRODUCT, ids=str)
def test_every_product_config_gives_the_same(config, generator, monkeypatch):
    monkeypatch.setattr(launches, "fastest", lambda key, configs, launch: config if key[0] is not None else configs[0])
    check((3, 4), 64, (130,), torch.float16 if config.tma else torch.float32, generator)


@pytest.mark.parametrize("config", launches._WEIGHT_GRAD, ids=str)
def test_every_weight_grad_config_gives_the_same(config, generator, monkeypatch):
    monkeypatch.setattr(launches, "fastest", lambda key, configs, launch: config if key[0] is None else configs[0])
    check((3, 4), 64 if config.tma else 32, (300,), torch.float16 if config.tma else torch.float32, generator)


def test_tensor_descriptors_are_for_rows_at_multiples_of_16_bytes(generator):
    weight = draw((2, 3), 64, 0.7, generator, torch.float16)
    wide = torch.randn(40, 300, generator=generator).to(torch.float16)
    for x, fits in ((wide[:, :192], False), (wide[:, :192].contiguous(), True), (wide[:1, :192].expand(9, 192), False)):
        assert launches._has_tma(x, weight.values) == fits
        y = block_linear(x, weight.values, None, weight.plan, weight.shape)
        torch.testing.assert_close(y.float(), x.float() @ weight.dense().float().T, rtol=0, atol=0.05)


def test_inputs_need_not_be_contiguous(generator):
    weight = draw((3, 2), 16, 0.7, generator)
    base = torch.randn(weight.shape[1], 40, generator=generator)
    wide = torch.randn(40, 2 * weight.shape[1], generator=generator)
    for x in (base.T, wide[:, : weight.shape[1]], wide[::2, : weight.shape[1]]):
        y = block_linear(x, weight.values, None, weight.plan, weight.shape)
        torch.testing.assert_close(y, x @ weight.dense().T, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("tokens", [(0,), (1,), (2, 0)])
def test_few_or_no_tokens(tokens, generator):
    check((3, 2), 16, tokens, torch.float32, generator)


def test_no_blocks(generator):
    check((3, 2), 16, (5,), torch.float32, generator, density=-1.0)


def test_blocks_move_in_place(generator):
    first, second = (draw((4, 4), 16, 0.5, torch.Generator().manual_seed(seed)) for seed in (1, 1))
    order = torch.randperm(16, generator=generator)
    active = second.active.flatten()[order].view(4, 4)
    from orthosparse.operators import plan_of

    rows, columns = active.nonzero(as_tuple=True)
    first.plan.copy_(plan_of(rows, columns, grid=(4, 4), size=16))
    first.active = active
    x = torch.randn(20, 64, generator=generator)
    y = block_linear(x, first.values, None, first.plan, first.shape)
    torch.testing.assert_close(y, x @ first.dense().T, rtol=1e-5, atol=1e-5)
