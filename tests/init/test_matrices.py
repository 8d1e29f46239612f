import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.seeded import seeded
from orthosparse import givens
from orthosparse.counts import count_of
from orthosparse.init import sparse_orthogonal_
from orthosparse.structures import grid_of, structure_of, tiled


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 6), st.integers(1, 6), st.floats(0, 1), st.sampled_from([16, 32]), st.integers(0, 2**32))
def test_a_matrix_of_blocks_has_the_nearest_number_of_them_and_is_orthogonal(rows, cols, density, block, seed):
    weight = torch.full((rows * block, cols * block), torch.nan, dtype=torch.float64)
    structure = f"block:{block}"
    mask = sparse_orthogonal_(weight, density, gain=1.5, floor="minimal", structure=structure, generator=seeded(seed))
    grid = grid_of(mask, block)
    assert torch.equal(tiled(grid, block, mask.shape), mask)
    assert int(grid.sum()) == max(min(rows, cols), count_of(density, rows * cols))
    assert not weight[~mask].any()
    wide = (weight if rows <= cols else weight.T) / 1.5
    assert (wide @ wide.T - torch.eye(len(wide), dtype=torch.float64)).abs().max() <= 1e-12


def test_its_entries_are_those_of_the_sampler():
    weight = torch.empty(64, 96)
    mask = sparse_orthogonal_(weight, count=9 * 256, structure="block:16", generator=seeded(4))
    values, grid = givens.sample_blocks((64, 96), 9, 16, generator=seeded(4), dtype=torch.float32)
    assert torch.equal(weight, values)
    assert torch.equal(mask, tiled(grid, 16, (64, 96)))


def test_entries_are_the_default():
    first, second = torch.empty(64, 64), torch.empty(64, 64)
    sparse_orthogonal_(first, 0.3, generator=seeded())
    sparse_orthogonal_(second, 0.3, structure="entries", generator=seeded())
    assert torch.equal(first, second)


@pytest.mark.parametrize("shape", [(64, 96), (96, 64)])
def test_too_few_blocks_make_a_partial_isometry(shape):
    weight = torch.empty(shape, dtype=torch.float64)
    mask = sparse_orthogonal_(weight, count=2 * 256, floor="partial", structure="block:16", generator=seeded())
    assert int(mask.sum()) == 2 * 256
    values = torch.linalg.svdvals(weight)
    torch.testing.assert_close(values, torch.tensor([1.0] * 32 + [0.0] * 32).double(), rtol=0, atol=1e-12)
    assert structure_of(mask) == "block:16"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"density": 0.3, "structure": "block:64"},
            r"structure: 'block:64' does not divide 96 x 128; expected 'block:32'",
        ),
        (
            {"density": 0.2, "structure": "block:32"},
            r"density: expected at least 0.25 .*; got 0.2 \(2048\).*'block:16' fits",
        ),
        ({"density": 0.1, "structure": "block:32"}, r"'entries' fits"),
        ({"count": 700, "structure": "block:16"}, r"count: expected a multiple of 256, the size of a block; got 700"),
        ({"density": 0.5, "structure": "blocks"}, r"structure: expected 'entries'"),
        (
            {"density": 0.5, "structure": "block:32", "angle": 1.0},
            r"angle: expected None, as rotations of blocks have no",
        ),
    ],
)
def test_what_is_refused_is_named_and_the_weight_stays(options, message):
    weight = torch.full((96, 128), 7.0)
    with pytest.raises(ValueError, match=message):
        sparse_orthogonal_(weight, **options)
    assert bool((weight == 7.0).all())


def test_sides_that_no_block_divides_are_sent_to_entries():
    with pytest.raises(ValueError, match=r"does not divide 40 x 64; expected 'entries'"):
        sparse_orthogonal_(torch.empty(40, 64), 0.5, structure="block:32")


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 20), st.integers(1, 20), st.integers(0, 2**32))
def test_a_2_4_matrix_is_exactly_orthogonal(rows, cols, seed):
    weight = torch.full((4 * rows, 4 * cols), torch.nan, dtype=torch.float64)
    mask = sparse_orthogonal_(weight, 0.5, gain=2.0, structure="2:4", generator=seeded(seed))
    assert structure_of(mask) == "2:4"
    assert not weight[~mask].any()
    wide = (weight if rows <= cols else weight.T) / 2
    assert (wide @ wide.T - torch.eye(len(wide), dtype=torch.float64)).abs().max() <= 1e-12


def test_the_halves_and_their_places_are_drawn_from_the_seed():
    first, again, other = (torch.empty(32, 48) for _ in range(3))
    masks = [
        sparse_orthogonal_(weight, 0.5, structure="2:4", generator=seeded(seed))
        for weight, seed in ((first, 0), (again, 0), (other, 1))
    ]
    assert torch.equal(first, again)
    assert torch.equal(masks[0], masks[1])
    assert not torch.equal(masks[0], masks[2])


@pytest.mark.parametrize(
    ("shape", "options", "message"),
    [
        ((16, 16), {"density": 0.4}, r"density: got 0.4; expected 128 entries, a density of 0.5, with structure '2:4'"),
        ((16, 16), {"count": 100}, r"count: got 100; expected 128 entries"),
        ((16, 10), {"density": 0.5}, r"structure: '2:4' expects sides that four divides; got 16 x 10"),
        ((16, 16), {"density": 0.5, "stop": "first"}, r"stop: expected its default with structure '2:4'"),
        ((16, 16), {"density": 0.5, "angle": 1.0}, r"angle: expected its default with structure '2:4'"),
        ((16, 16), {"density": 0.5, "core": 0.5}, r"core: expected its default with structure '2:4'"),
        ((16, 16), {"density": 0.5, "align": torch.ones(16, 16)}, r"align: expected its default with structure '2:4'"),
    ],
)
def test_what_2_4_refuses_is_named_and_the_weight_stays(shape, options, message):
    weight = torch.full(shape, 7.0)
    with pytest.raises(ValueError, match=message):
        sparse_orthogonal_(weight, structure="2:4", **options)
    assert bool((weight == 7.0).all())
