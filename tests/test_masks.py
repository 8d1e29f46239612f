import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from orthosparse.masks import counts_of, densities_of, density_of, draw, overlap, resize, top_k


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
