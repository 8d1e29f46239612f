import torch
from hypothesis import given
from hypothesis import strategies as st

from orthosparse.structures import (
    block_of,
    fitting,
    grid_of,
    largest_fitting,
    means_of,
    structure_of,
    tiled,
    two_of_four,
)


@given(st.lists(st.integers(1, 40).map(lambda size: 8 * size), min_size=1, max_size=4), st.sampled_from([16, 32, 64]))
def test_the_fitting_block_is_the_largest_power_of_two_from_16_on_that_divides_every_side(shape, block):
    dividing = [b for b in (16, 32, 64) if b <= block and all(size % b == 0 for size in shape)]
    assert fitting(f"block:{block}", shape) == (f"block:{max(dividing)}" if dividing else "entries")


def test_entries_fit_everywhere_and_2_4_where_four_divides_the_sides():
    assert fitting("entries", [3, 5]) == "entries"
    assert [fitting("2:4", shape) for shape in ([8, 12], [8, 10], [6, 12])] == ["2:4", "entries", "entries"]
    assert [block_of(structure) for structure in ("entries", "2:4", "block:32")] == [1, 1, 32]


def test_smaller_blocks_are_tried_down_to_16_and_then_entries():
    seen = []
    assert largest_fitting(128, lambda block: bool(seen.append(block))) is None
    assert seen == [64, 32, 16, 1]
    assert largest_fitting(1, lambda block: True) is None


@given(st.integers(1, 4), st.integers(1, 4), st.sampled_from([1, 2, 5]), st.booleans())
def test_a_grid_tiled_is_a_tensor_of_constant_blocks_and_read_back(rows, cols, block, kernel):
    grid = torch.rand(rows, cols, generator=torch.Generator().manual_seed(rows * 7 + cols)) < 0.5
    shape = (rows * block, cols * block, 1, 1) if kernel and block > 1 else (rows * block, cols * block)
    mask = tiled(grid, block, shape)
    assert mask.shape == shape
    assert all(bool(mask[i, j]) == bool(grid[i // block, j // block]) for i in range(shape[0]) for j in range(shape[1]))
    assert torch.equal(grid_of(mask, block), grid)


def test_means_are_those_of_the_blocks():
    scores = torch.arange(24.0).view(4, 6)
    expected = [[scores[i : i + 2, j : j + 2].mean().item() for j in (0, 2, 4)] for i in (0, 2)]
    assert means_of(scores, 2).tolist() == expected
    assert means_of(scores.view(4, 6, 1, 1), 2).tolist() == expected
    assert means_of(scores, 1) is scores


@given(st.integers(2, 5), st.integers(2, 5), st.sampled_from([16, 32]), st.integers(0, 2**32))
def test_the_structure_of_a_mask_of_blocks_is_read_off_it(rows, cols, block, seed):
    grid = torch.rand(rows, cols, generator=torch.Generator().manual_seed(seed)) < 0.5
    mask = tiled(grid, block, (rows * block, cols * block))
    found = structure_of(mask)
    if grid.all() or not grid.any():
        assert found == "entries"
    else:  # blocks may lie so that larger ones have them all
        assert block_of(found) % block == 0
        assert torch.equal(tiled(grid_of(mask, block_of(found)), block_of(found), mask.shape), mask)


def test_one_entry_more_or_less_makes_a_mask_of_entries():
    mask = tiled(torch.eye(2, dtype=torch.bool), 32, (64, 64))
    assert structure_of(mask) == "block:32"
    mask[5, 60] = True
    assert structure_of(mask) == "entries"


def test_kernels_of_one_tap_are_matrices_and_others_have_entries():
    mask = tiled(torch.eye(2, dtype=torch.bool), 32, (64, 64))
    assert structure_of(mask.view(64, 64, 1, 1)) == "block:32"
    assert structure_of(mask.view(64, 64, 1, 1).expand(64, 64, 3, 3)) == "entries"


@given(st.integers(1, 20), st.integers(1, 20), st.integers(0, 2**32))
def test_two_of_every_aligned_four_are_chosen_along_both_sides(rows, cols, seed):
    chosen = two_of_four((4 * rows, 4 * cols), torch.Generator().manual_seed(seed))
    mask = chosen[0][:, None] == chosen[1]
    for matrix in (mask, mask.T):
        for line in matrix:
            assert all(int(line[i : i + 4].sum()) == 2 for i in range(0, len(line), 4))
    assert structure_of(mask) == structure_of(mask.view(*mask.shape, 1, 1)) == "2:4"


def test_every_pair_of_four_is_chosen_equally_often():
    (chosen,) = two_of_four((4 * 6000,), torch.Generator().manual_seed(0))
    pairs = (chosen.view(-1, 4) * torch.tensor([1, 2, 4, 8])).sum(1).bincount(minlength=16)
    assert set(pairs.nonzero().flatten().tolist()) == {3, 5, 6, 9, 10, 12}
    # Binomial counts of mean 1000: within five deviations.
    assert (pairs[pairs > 0] - 1000).abs().max() < 5 * (6000 * 5 / 36) ** 0.5


def test_one_entry_more_makes_a_2_4_mask_one_of_entries():
    rows, cols = two_of_four((16, 16), torch.Generator().manual_seed(0))
    mask = rows[:, None] == cols
    mask[3, int((~mask[3]).nonzero()[0])] = True
    assert structure_of(mask) == "entries"
