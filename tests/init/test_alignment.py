from itertools import permutations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.rounding import rounding_floor
from contracts.seeded import seeded
from orthosparse import givens
from orthosparse.init import alignment, sparse_delta_orthogonal_, sparse_orthogonal_
from orthosparse.init.alignment import aligned_order, permute
from orthosparse.masks import draw
from orthosparse.orthogonality import orthogonality_score
from orthosparse.structures import grid_of, tiled


def saliency(shape, count, seed=0):
    """A mask with rich and poor rows and columns, as scores give them."""
    g = seeded(seed)
    scores = torch.randn(shape, generator=g)
    for side in range(len(shape)):
        scores = scores + torch.randn([n if axis == side else 1 for axis, n in enumerate(shape)], generator=g)
    mask = torch.zeros(scores.numel(), dtype=torch.bool)
    mask[scores.flatten().topk(count).indices] = True
    return mask.view(shape)


def shared(first, second):
    return int((first & second).sum())


@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 99))
def test_an_order_is_a_permutation_of_rows_and_one_of_columns(n, m, seed):
    active, mask = (draw((n, m), n * m // 3, generator=seeded(seed + k)) for k in (0, 1))
    rows, cols = aligned_order(active, mask)
    assert sorted(rows.tolist()) == list(range(n))
    assert sorted(cols.tolist()) == list(range(m))


@pytest.mark.parametrize("seed", range(8))
def test_no_other_order_of_the_rows_overlaps_more(seed):
    active, mask = (draw((5, 7), 12, generator=seeded(seed + k)) for k in (0, 100))
    rows, cols = aligned_order(active, mask)
    placed = active[rows][:, cols]
    assert shared(placed, mask) == max(shared(placed[list(order)], mask) for order in permutations(range(5)))


@pytest.mark.parametrize("size", [30, 300, 600])  # 300 and 600: in blocks
def test_a_permutation_matrix_is_found_again_wherever_it_went(size):
    active = torch.eye(size, dtype=torch.bool)
    mask = active[torch.randperm(size, generator=seeded())]
    rows, cols = aligned_order(active, mask)
    # All degrees are equal, so that blocks know nothing of each other: what is found lies within them.
    expected = size if size <= alignment.BLOCK else size / 4
    assert shared(active[rows][:, cols], mask) >= expected


@pytest.mark.parametrize("shape", [(64, 64), (100, 784), (300, 520)])
@pytest.mark.parametrize("density", [0.03, 0.1, 0.3])
def test_every_step_overlaps_more_than_the_one_before(shape, density, monkeypatch):
    count = int(density * shape[0] * shape[1])
    _, active = givens.sample(shape, count, generator=seeded())
    mask = saliency(shape, count)
    overlaps = [shared(active, mask)]  # unaligned, sorted by degree, after one round, after two
    for rounds in (0, 1, 2):
        monkeypatch.setattr(alignment, "ROUNDS", rounds)
        rows, cols = aligned_order(active, mask)
        overlaps.append(shared(active[rows][:, cols], mask))
    assert overlaps == sorted(set(overlaps))


def test_past_a_size_there_is_one_round_and_past_another_none(monkeypatch):
    _, active = givens.sample((40, 60), 300, generator=seeded())
    mask, found = saliency((40, 60), 300), []
    for limits in ((2400, 2400), (2399, 2400), (2399, 2399)):
        monkeypatch.setattr(alignment, "ALL_ROUNDS", limits[0])
        monkeypatch.setattr(alignment, "ONE_ROUND", limits[1])
        rows, cols = aligned_order(active, mask)
        found.append(shared(active[rows][:, cols], mask))
    assert found[0] > found[1] > found[2] > shared(active, mask)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.bool])
def test_permuting_is_indexing_for_every_dtype(dtype):
    matrix = torch.randn(5, 7, generator=seeded()).to(dtype)
    rows, cols = torch.randperm(5, generator=seeded()), torch.randperm(7, generator=seeded())
    assert torch.equal(permute(matrix, rows, cols), matrix[rows][:, cols])


@settings(max_examples=40)
@given(
    st.integers(1, 24),
    st.integers(1, 24),
    st.floats(0, 1),
    st.sampled_from([torch.float16, torch.bfloat16, torch.float32, torch.float64]),
    st.sampled_from([None, 0.0, 0.3, 1.0]),
)
def test_an_aligned_matrix_is_orthogonal_has_its_count_and_overlaps_no_less(n, m, density, dtype, core):
    count = max(min(n, m), int(density * n * m))
    mask, weight, plain = saliency((n, m), count), torch.empty(n, m, dtype=dtype), torch.empty(n, m, dtype=dtype)
    active = sparse_orthogonal_(weight, count=count, align=mask, core=core, generator=seeded())
    assert int(active.sum()) == count
    assert bool((weight[~active] == 0).all())
    assert orthogonality_score(weight) <= rounding_floor(weight)
    unaligned = sparse_orthogonal_(plain, count=count, core=core, generator=seeded())
    assert shared(active, mask) >= shared(unaligned, mask) or core is not None
    if core is None:
        assert torch.equal(weight.flatten().sort().values, plain.flatten().sort().values)  # the same entries, moved


@settings(max_examples=40)
@given(
    st.sampled_from([1, 2, 3]),
    st.integers(1, 7),
    st.integers(1, 7),
    st.sampled_from([(3,), (3, 3), (2, 3), (1, 1), (1, 2, 2)]),
    st.floats(0, 1),
    st.booleans(),
    st.sampled_from([{}, {"core": 0.4}, {"tap": "center"}, {"tap": "random"}, {"center_density": 0.2}]),
)
def test_an_aligned_kernel_is_orthogonal_and_has_its_count(groups, first, second, sides, density, transposed, options):
    shape = (groups * first, second, *sides)
    weight = torch.empty(shape, dtype=torch.float64)
    count = max(groups * min(first, second), int(density * weight.numel()))
    mask = saliency(shape, count)
    active = sparse_delta_orthogonal_(
        weight, count=count, groups=groups, transposed=transposed, align=mask, generator=seeded(), **options
    )
    assert int(active.sum()) == count
    assert bool((weight[~active] == 0).all())
    assert orthogonality_score(weight, groups=groups, transposed=transposed) < 1e-12


def test_the_core_is_a_share_of_the_count_and_the_rest_lies_on_the_mask_at_zero():
    mask, weight = saliency((20, 30), 200), torch.empty(20, 30)
    active = sparse_orthogonal_(weight, count=200, align=mask, core=0.25, generator=seeded())
    assert int(weight.count_nonzero()) == 50
    assert bool((active & (weight == 0) <= mask).all())
    assert shared(active, mask) >= 150


@pytest.mark.parametrize(("core", "nonzero"), [(0.0, 20), (0.05, 20), (0.2, 40), (1.0, 200)])
def test_a_core_is_never_below_the_floor(core, nonzero):
    weight = torch.empty(20, 30)
    active = sparse_orthogonal_(weight, count=200, core=core, generator=seeded())
    assert (int(active.sum()), int(weight.count_nonzero())) == (200, nonzero)
    assert orthogonality_score(weight) <= rounding_floor(weight)


def test_every_input_channel_sits_at_the_tap_that_its_mask_uses_most():
    mask = torch.zeros(8, 3, 3, 3, dtype=torch.bool)
    mask[:6, 0, 0, 2] = mask[:5, 0, 1, 1] = True  # 6 against 5 at the centre
    mask[:4, 1, 2, 0] = mask[:4, 1, 1, 1] = True  # as many at the centre
    weight = torch.empty(8, 3, 3, 3)  # channel 2 has no entries
    sparse_delta_orthogonal_(weight, count=19, align=mask, generator=seeded())
    used = weight.ne(0).any(0).flatten(1)
    assert [torch.nonzero(channel).flatten().tolist() for channel in used] == [[2], [4], [4]]


def test_groups_share_the_count_as_their_masks_do():
    mask = torch.zeros(16, 8, 1, dtype=torch.bool)
    mask[:8, :6] = True  # 48 entries in the first group, none in the second
    weight = torch.empty(16, 8, 1)
    active = sparse_delta_orthogonal_(weight, count=48, groups=2, align=mask, core=1.0, generator=seeded())
    assert int(active[:8].sum()) == 40
    assert int(active[8:].sum()) == 8
    assert orthogonality_score(weight, groups=2) < 1e-6


@pytest.mark.parametrize("count", [1, 5, 11])
def test_a_partial_isometry_lies_on_the_mask_where_a_matching_exists(count):
    mask = torch.zeros(12, 40, dtype=torch.bool)
    mask[torch.randperm(12, generator=seeded())[:count], torch.randperm(40, generator=seeded(1))[:count]] = True
    weight = torch.empty(12, 40, dtype=torch.float64)
    active = sparse_orthogonal_(weight, count=count, align=mask, floor="partial", generator=seeded())
    assert torch.equal(active, mask)
    assert torch.equal(torch.linalg.svdvals(weight), (torch.arange(12) < count).double())


def test_scores_stand_for_the_mask_of_the_largest():
    scores = torch.randn(10, 12, generator=seeded())
    first, second = torch.empty(10, 12), torch.empty(10, 12)
    mask = torch.zeros(120, dtype=torch.bool)
    mask[scores.flatten().topk(30).indices] = True
    a = sparse_orthogonal_(first, count=30, align=scores, generator=seeded())
    b = sparse_orthogonal_(second, count=30, align=mask.view(10, 12), generator=seeded())
    assert torch.equal(a, b)
    assert torch.equal(first, second)


def test_the_same_seed_gives_the_same_bits_and_another_one_others():
    mask = saliency((30, 30, 3, 3), 900)
    weights = [torch.empty(30, 30, 3, 3) for _ in range(3)]
    masks = [
        sparse_delta_orthogonal_(weight, count=900, align=mask, core=0.3, generator=seeded(seed))
        for weight, seed in zip(weights, (0, 0, 1), strict=True)
    ]
    assert torch.equal(masks[0], masks[1])
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    assert not torch.equal(masks[0], masks[2])


@pytest.mark.parametrize("fill", [sparse_orthogonal_, sparse_delta_orthogonal_])
@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"align": torch.ones(4, 5)}, ValueError, r"align: expected the weight's shape .*; got \(4, 5\)"),
        ({"align": "mask"}, TypeError, "align: expected a bool mask, or scores; got 'mask'"),
        ({"core": 1.5}, ValueError, r"core: expected a number in \[0, 1\]; got 1.5"),
    ],
)
def test_what_is_nothing_to_align_to_is_refused_and_the_weight_left_alone(fill, options, error, message):
    weight = torch.full((4, 6) if fill is sparse_orthogonal_ else (4, 6, 3), 7.0)
    with pytest.raises(error, match=message):
        fill(weight, 0.5, **options)
    assert bool((weight == 7).all())


def test_a_core_and_a_center_density_and_a_tap_without_a_mask_are_refused():
    weight = torch.full((4, 6, 3), 7.0)
    with pytest.raises(ValueError, match=r"core: expected None beside center_density; got 0.5 and 0.2"):
        sparse_delta_orthogonal_(weight, 0.5, core=0.5, center_density=0.2)
    with pytest.raises(ValueError, match=r"tap: .*expects a mask to align to"):
        sparse_delta_orthogonal_(weight, 0.5, tap="mask")
    assert bool((weight == 7).all())


@pytest.mark.parametrize("core", [None, 0.4])
@pytest.mark.parametrize("shape", [(64, 96), (96, 64), (128, 128)])
def test_aligned_blocks_are_orthogonal_and_lie_on_more_of_the_mask(shape, core):
    sides = shape[0] // 16, shape[1] // 16
    number = int(0.4 * sides[0] * sides[1])
    mask, found = tiled(saliency(sides, number), 16, shape), []
    for align in (None, mask):
        weight = torch.empty(shape, dtype=torch.float64)
        active = sparse_orthogonal_(
            weight, count=256 * number, structure="block:16", align=align, core=core, generator=seeded()
        )
        assert int(active.sum()) == 256 * number
        assert torch.equal(tiled(grid_of(active, 16), 16, shape), active)
        assert bool((weight[~active] == 0).all())
        assert orthogonality_score(weight) < 1e-12
        found.append(shared(active, mask))
    assert found[1] > found[0]
