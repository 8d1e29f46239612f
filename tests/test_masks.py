import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from contracts.states import assert_same
from orthosparse.masks import (
    counts_of,
    densities_of,
    density_of,
    draw,
    overlap,
    resize,
    resize_by,
    resize_towards,
    top_k,
    top_units,
)
from orthosparse.structures import grid_of, tiled


@given(st.integers(1, 40), st.integers(1, 40), st.floats(0, 1), st.integers(0, 2**32))
def test_a_drawn_mask_has_exactly_its_count(n, m, density, seed):
    count = int(density * n * m)
    mask = draw((n, m), count, generator=torch.Generator().manual_seed(seed))
    assert mask.dtype == torch.bool
    assert mask.shape == (n, m)
    assert int(mask.sum()) == count


@pytest.mark.parametrize("count", [2, 5, 11, 15])
def test_every_entry_is_drawn_equally_often(count):
    g, rounds = torch.Generator().manual_seed(0), 4000
    hits = sum(draw((16,), count, generator=g).double() for _ in range(rounds)) / rounds
    p = count / 16
    # 16 binomial frequencies: all within 4 standard deviations in 99.9 % of honest runs.
    assert (hits - p).abs().max() < 4 * (p * (1 - p) / rounds) ** 0.5


def test_pairs_of_entries_are_drawn_together_as_often_as_chance_has_it():
    g, rounds = torch.Generator().manual_seed(1), 4000
    draws = torch.stack([draw((8,), 3, generator=g).double() for _ in range(rounds)])
    together = (draws.T @ draws / rounds)[~torch.eye(8, dtype=torch.bool)]
    p = 3 * 2 / (8 * 7)
    assert (together - p).abs().max() < 4.5 * (p * (1 - p) / rounds) ** 0.5


@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 2**32))
def test_resizing_adds_or_removes_and_never_both(before, after, seed):
    g = torch.Generator().manual_seed(seed)
    mask = draw((6, 10), before, generator=g)
    copy = mask.clone()
    resized = resize(mask, after, generator=g)
    assert torch.equal(mask, copy)
    assert int(resized.sum()) == after
    kept = int((mask & resized).sum())
    assert kept == min(before, after) or before == 0


def test_a_count_that_does_not_fit_is_refused(generator):
    with pytest.raises(ValueError, match=r"count: expected an integer in \[0, 6\]; got 7"):
        draw((2, 3), 7, generator=generator)


@given(st.lists(st.lists(st.integers(-3, 3), min_size=1, max_size=7), min_size=1, max_size=4), st.data())
def test_cut_keeps_the_largest_and_of_equal_ones_the_first(rows, data):
    scores = {str(i): torch.tensor(row, dtype=torch.float64) for i, row in enumerate(rows)}
    flat = [value for row in rows for value in row]
    count = data.draw(st.integers(0, len(flat)))
    order = sorted(range(len(flat)), key=lambda i: (-flat[i], i))[:count]
    expected = [i in order for i in range(len(flat))]
    assert torch.cat([*top_k(scores, count).values()]).tolist() == expected


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_cut_names_the_layer_whose_scores_are_not_finite(bad):
    with pytest.raises(ValueError, match="layer 'fc2' has NaN or infinite"):
        top_k({"fc1": torch.ones(3), "fc2": torch.tensor([1.0, bad])}, 2)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_cut_reads_scores_of_any_precision_alike(dtype):
    scores = {"a": torch.tensor([[4.0, 1.0], [2.0, 2.0]], dtype=dtype), "b": torch.tensor([2.0, 8.0], dtype=dtype)}
    kept = top_k(scores, 4)
    assert kept["a"].tolist() == [[True, False], [True, True]]
    assert kept["b"].tolist() == [False, True]


def test_densities_are_read_off_the_masks():
    masks = {"a": torch.tensor([True, False, True, True]), "b": torch.zeros(2, 2, dtype=torch.bool)}
    assert counts_of(masks) == {"a": 3, "b": 0}
    assert densities_of(masks) == {"a": 0.75, "b": 0.0}
    assert density_of(masks) == 3 / 8


def test_overlap_is_the_share_of_common_entries():
    a = {"x": torch.tensor([True, True, False, False]), "y": torch.zeros(2, dtype=torch.bool)}
    b = {"x": torch.tensor([True, False, True, False]), "y": torch.zeros(2, dtype=torch.bool)}
    assert overlap(a, b) == {"x": 1 / 3, "y": 1.0}
    with pytest.raises(ValueError, match="second: expected masks of the layers"):
        overlap(a, {"x": a["x"]})


@given(st.integers(1, 6), st.integers(1, 6), st.floats(0, 1), st.integers(0, 2**32))
def test_a_drawn_mask_of_blocks_has_whole_blocks_and_exactly_its_count(rows, cols, density, seed):
    count = 256 * int(density * rows * cols)
    shape = 16 * rows, 16 * cols
    mask = draw(shape, count, block=16, generator=torch.Generator().manual_seed(seed))
    assert int(mask.sum()) == count
    assert torch.equal(tiled(grid_of(mask, 16), 16, shape), mask)
    more = resize(mask, 256 * rows * cols - count, block=16, generator=torch.Generator().manual_seed(seed))
    assert int(more.sum()) == 256 * rows * cols - count
    assert bool((mask & more == (mask if more.sum() >= mask.sum() else more)).all())


def test_a_count_of_broken_blocks_is_refused():
    with pytest.raises(ValueError, match="count: expected a multiple of 256, the size of a block; got 300"):
        draw((32, 32), 300, block=16, generator=torch.Generator())


@given(st.floats(0, 1), st.integers(0, 2**32))
def test_units_are_ranked_by_their_mean_score_an_entry(density, seed):
    g = torch.Generator().manual_seed(seed)
    scores = {
        "a": torch.rand(64, 96, generator=g),
        "b": torch.rand(32, 16, generator=g),
        "c": torch.rand(40, 30, generator=g),
    }
    blocks = {"a": 32, "b": 16, "c": 1}
    numel = sum(score.numel() for score in scores.values())
    count = round(density * numel)
    masks = top_units(scores, blocks, count)
    assert sum(counts_of(masks).values()) == count or min(count, numel - count) < 1024
    for name, block in blocks.items():
        grid = grid_of(masks[name], block)
        assert torch.equal(tiled(grid, block, scores[name].shape), masks[name])
        rows, cols = scores[name].shape
        means = scores[name].view(rows // block, block, cols // block, block).mean((1, 3))
        kept, left = means[grid], means[~grid]
        assert not len(kept) or not len(left) or kept.min() >= left.max()


def test_units_alone_or_entries_alone_are_the_top_of_their_kind():
    scores = {"a": torch.rand(4, 8, generator=torch.Generator().manual_seed(0)), "b": torch.rand(5, 3)}
    assert_same(top_k(scores, 11), top_units(scores, {"a": 1, "b": 1}, 11))
    high = {"a": torch.zeros(32, 32), "b": torch.ones(16, 16)}
    assert counts_of(top_units(high, {"a": 16, "b": 16}, 700)) == {"a": 512, "b": 256}  # 2.7 blocks: 3, b's first


@given(st.lists(st.integers(-3, 3), min_size=4, max_size=20), st.data())
def test_the_largest_within_given_masks_are_those_of_the_scores_inside(values, data):
    half = len(values) // 2
    scores = {"a": torch.tensor(values[:half]).double(), "b": torch.tensor(values[half:]).double()}
    inside = data.draw(st.lists(st.booleans(), min_size=len(values), max_size=len(values)))
    within = {"a": torch.tensor(inside[:half]), "b": torch.tensor(inside[half:])}
    count = data.draw(st.integers(0, sum(inside)))
    below = {name: score.where(within[name], -9.0) for name, score in scores.items()}
    kept = top_units(scores, {"a": 1, "b": 1}, count, within)
    assert_same(kept, top_k(below, count))
    with pytest.raises(ValueError, match=rf"count: expected an integer in \[0, {sum(inside)}\]"):
        top_k(scores, sum(inside) + 1, within)


def test_scores_of_different_precisions_are_compared_in_the_higher_one():
    scores = {"a": torch.tensor([1.0078125, 1.0], dtype=torch.bfloat16), "b": torch.tensor([1.001, 0.0])}
    assert {name: mask.tolist() for name, mask in top_k(scores, 2).items()} == {"a": [True, False], "b": [True, False]}


def test_units_lie_within_what_is_given():
    g = torch.Generator().manual_seed(0)
    scores = {"a": torch.rand(64, 64, generator=g), "b": torch.rand(30, 40, generator=g)}
    within = {"a": draw((64, 64), 2048, block=32, generator=g), "b": draw((30, 40), 5, generator=g)}
    for count in (1500, 2053, 1029):
        masks = top_units(scores, {"a": 32, "b": 1}, count, within)
        assert all(bool((mask <= within[name]).all()) for name, mask in masks.items())


@given(st.integers(1, 60), st.floats(0, 1), st.floats(0, 1), st.floats(0, 1), st.integers(0, 99))
def test_resizing_towards_a_goal_adds_its_entries_first_and_removes_them_last(size, start, wanted, aim, seed):
    g = torch.Generator().manual_seed(seed)
    mask, goal = (draw((size,), int(share * size), generator=g) for share in (start, aim))
    count = int(wanted * size)
    result = resize_towards(mask, count, goal, generator=g)
    assert int(result.sum()) == count
    if count >= int(mask.sum()):
        assert bool((result >= mask).all())
        added = result & ~mask
        assert bool((added <= goal).all()) or bool((result >= goal).all())
    else:
        assert bool((result <= mask).all())
        assert bool((result <= goal).all()) or bool((result >= mask & goal).all())


@given(st.integers(1, 40), st.floats(0, 1), st.floats(0, 1), st.integers(0, 99))
def test_resizing_by_scores_adds_the_largest_and_removes_the_smallest(size, start, wanted, seed):
    g = torch.Generator().manual_seed(seed)
    mask, scores = draw((size,), int(start * size), generator=g), torch.randn(size, generator=g)
    count = int(wanted * size)
    result = resize_by(mask, count, scores, generator=g)
    assert int(result.sum()) == count
    if count >= int(mask.sum()):
        added, left = scores[result & ~mask], scores[~result]
        assert bool((result >= mask).all())
        assert not len(added) or not len(left) or added.min() > left.max()
    else:
        removed, kept = scores[mask & ~result], scores[result]
        assert bool((result <= mask).all())
        assert not len(kept) or removed.max() < kept.min()


def test_of_equal_scores_random_ones_are_taken():
    masks = [
        resize_by(torch.zeros(50, dtype=torch.bool), 5, torch.zeros(50), generator=torch.Generator().manual_seed(seed))
        for seed in range(2)
    ]
    assert not torch.equal(*masks)


def test_resizing_blocks_by_scores_moves_whole_blocks():
    g = torch.Generator().manual_seed(0)
    mask, scores = draw((64, 64), 1024, block=16, generator=g), torch.randn(64, 64, generator=g)
    for count in (512, 2048):
        result = resize_by(mask, count, scores, block=16, generator=g)
        assert int(result.sum()) == count
        assert torch.equal(tiled(grid_of(result, 16), 16, mask.shape), result)
    with pytest.raises(ValueError, match="count: expected a multiple of 256"):
        resize_by(mask, 300, scores, block=16, generator=g)
