import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.defaults import other_defaults
from contracts.seeded import seeded
from orthosparse.givens import sample_blocks
from orthosparse.hardware import on_threads
from orthosparse.structures import tiled


def gram_error(matrix):
    """The largest entry of |A A^T - I| on the smaller side, in float64."""
    wide = matrix.double() if matrix.shape[0] <= matrix.shape[1] else matrix.double().T
    return float((wide @ wide.T - torch.eye(len(wide), dtype=torch.float64)).abs().max())


@st.composite
def questions(draw):
    block = draw(st.sampled_from([1, 2, 3, 8, 16, 32]))
    grid = draw(st.integers(1, 12)), draw(st.integers(1, 12))
    count = draw(st.integers(min(grid), grid[0] * grid[1]))
    return (grid[0] * block, grid[1] * block), count, block, draw(st.integers(0, 2**32))


@settings(max_examples=80, deadline=None)
@given(question=questions(), start=st.sampled_from(["identity", "permuted"]))
def test_the_number_of_blocks_is_exact_and_the_matrix_orthogonal(question, start):
    shape, count, block, seed = question
    values, grid = sample_blocks(shape, count, block, start=start, generator=seeded(seed))
    assert values.shape == shape
    assert grid.shape == (shape[0] // block, shape[1] // block)
    assert int(grid.sum()) == count
    assert not values[~tiled(grid, block, shape)].any()
    assert gram_error(values) <= 1e-12


@pytest.mark.parametrize("shape", [(512, 512), (1024, 256), (256, 1024)])
@pytest.mark.parametrize("block", [64, 128])
def test_large_blocks_are_as_exact(shape, block):
    count = max(min(shape) // block, shape[0] * shape[1] // block**2 // 4)
    values, grid = sample_blocks(shape, count, block, generator=seeded())
    assert int(grid.sum()) == count
    assert gram_error(values) <= 1e-12


def test_every_active_block_is_full_rank_and_none_is_an_identity():
    """The start too, where no rotation touches a block."""
    values, grid = sample_blocks((128, 128), 8, 16, generator=seeded())
    blocks = values.view(8, 16, 8, 16).transpose(1, 2)[grid]
    assert torch.equal(grid, torch.eye(8, dtype=torch.bool))
    for block in blocks:
        assert gram_error(block) <= 1e-12
        assert (block != 0).all()
    assert len({block.flatten()[0].item() for block in blocks}) == 8


def test_entries_of_a_rotated_matrix_are_as_large_as_chance_has_it():
    """A full matrix of 4 x 4 blocks: E[a^2] = 1 / n and no mean, over 200 draws."""
    draws = torch.stack([sample_blocks((32, 32), 16, 8, generator=seeded(seed))[0] for seed in range(200)])
    assert (draws.mean(0).abs() * (32 * 200) ** 0.5).max() < 6  # 1024 means, standard deviation 1
    assert abs(float(draws.square().mean()) * 32 - 1) < 1e-12


def test_bits_depend_on_the_seed_alone():
    first = sample_blocks((192, 256), 30, 32, generator=seeded(7))
    with on_threads(3), other_defaults():
        second = sample_blocks((192, 256), 30, 32, generator=seeded(7))
    assert all(map(torch.equal, first, second))
    assert not torch.equal(first[0], sample_blocks((192, 256), 30, 32, generator=seeded(8))[0])


def test_a_tall_matrix_is_the_transpose_of_a_wide_one():
    wide, tall = (sample_blocks(shape, 12, 16, generator=seeded())[0] for shape in ((64, 96), (96, 64)))
    assert torch.equal(tall, wide.T)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_other_dtypes_are_casts_of_float64(dtype):
    exact, grid = sample_blocks((64, 96), 12, 16, generator=seeded())
    values, same = sample_blocks((64, 96), 12, 16, generator=seeded(), dtype=dtype)
    assert torch.equal(values, exact.to(torch.float32).to(dtype))
    assert torch.equal(grid, same)


@pytest.mark.parametrize("stop", ["first", "closest"])
def test_the_papers_stopping_rules_work_on_blocks(stop):
    values, grid = sample_blocks((256, 256), 100, 16, stop=stop, generator=seeded())
    assert abs(int(grid.sum()) - 100) <= 16
    assert gram_error(values) <= 1e-12


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (((64, 96), 12, 48), ValueError, r"block: expected a divisor of both sides of 64 x 96; got 48"),
        (((64, 96), 12, 0), ValueError, r"block: expected an integer of at least 1; got 0"),
        (((64, 96), 12, 2.0), TypeError, r"block: expected an integer; got 2.0"),
        (((64, 96), 3, 16), ValueError, r"count: an orthogonal 4 x 6 matrix has at least 4 active"),
        (((64, 96), 25, 16), ValueError, r"count: expected at most 24 active"),
        (((64,), 3, 16), ValueError, r"shape: expected two sizes"),
    ],
)
def test_bad_arguments_are_named(arguments, error, message):
    with pytest.raises(error, match=message):
        sample_blocks(*arguments)
