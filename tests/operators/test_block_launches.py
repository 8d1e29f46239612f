"""How the block kernels are launched."""

import pytest
import torch

from operators.blocks import draw
from orthosparse.operators import block_launches as launches


@pytest.fixture
def launched(monkeypatch):
    """Let nothing stand for the kernels, the second config win every comparison, and return the numbers of warps."""
    seen = []

    class Kernel:
        def __getitem__(self, programs):
            return lambda *args, num_warps: seen.append((programs, num_warps))

    class Kernels:
        block_product = block_weight_grad = Kernel()

    def fastest(key, configs, launch):
        seen.append(key)
        launches.chosen[key] = configs[1]
        return configs[1]

    monkeypatch.setattr(launches, "_kernels", lambda: Kernels)
    monkeypatch.setattr(launches, "chosen", {})
    monkeypatch.setattr(launches, "fastest", fastest)
    return seen


def test_a_choice_is_made_once_for_shapes_of_nearly_the_same_size(launched, generator):
    weight = draw((4, 4), 16, 0.5, generator)
    for tokens in (100, 101, 127, 128):
        launches.product(torch.randn(tokens, 64), weight.values, None, weight.plan, features=64, transposed=False)
    keys = [each for each in launched if len(each) > 2]
    assert len(keys) == 2, "128 is of another power of two"
    assert len(launched) == 2 + 4


def test_under_deterministic_algorithms_the_first_config_is_used_whatever_was_chosen(launched, generator):
    weight = draw((4, 4), 16, 0.5, generator)
    x, blocks = torch.randn(600, 64), len(weight.values)
    for _ in range(2):
        launches.product(x, weight.values, None, weight.plan, features=64, transposed=False)
        launches.weight_grad(x, x, weight.plan, blocks=blocks, size=16)
        torch.use_deterministic_algorithms(not torch.are_deterministic_algorithms_enabled())
    try:
        sizes = [each for each in launched if len(each) == 2]
    finally:
        torch.use_deterministic_algorithms(False)
    tiles = [-(-600 // config.tokens) * 4 for config in (launches._PRODUCT[1], launches._PRODUCT[0])]
    assert [programs for (programs,), _ in sizes[::2]] == tiles


@pytest.mark.parametrize("size", launches.GROUPS)
def test_sums_of_float32_without_matrix_units_fit_the_registers(size):
    """A thread has 255; where the sums alone take more, compiling takes minutes."""
    for config in launches._weight_grad_configs(size, False, "ieee"):
        assert launches.GROUPS[size] * size * size / (32 * config.warps) <= 128
