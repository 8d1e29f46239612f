import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from orthosparse.counts import count_of
from orthosparse.distributions.erk import erk
from orthosparse.masks import counts_of


def epsilon_search(shapes, density):
    """Densities by the search of RigL: while some layer would be more than full, the fullest becomes dense."""
    sizes = [torch.Size(shape).numel() for shape in shapes]
    raw = [sum(shape) / size for shape, size in zip(shapes, sizes, strict=True)]
    dense = set()
    while len(dense) < len(shapes):
        budget = density * sum(sizes) - sum(sizes[i] for i in dense)
        epsilon = budget / sum(raw[i] * sizes[i] for i in range(len(sizes)) if i not in dense)
        top = max(raw[i] for i in range(len(sizes)) if i not in dense)
        if epsilon * top <= 1:
            return [1.0 if i in dense else epsilon * raw[i] for i in range(len(sizes))]
        dense |= {i for i in range(len(sizes)) if i not in dense and raw[i] == top}
    return [1.0] * len(shapes)


def module_of(shape):
    if len(shape) == 2:
        return nn.Linear(shape[1], shape[0], bias=False)
    return nn.Conv2d(shape[1], shape[0], shape[2:], bias=False)


side = st.integers(1, 20)
shapes = st.lists(
    st.tuples(side, side) | st.tuples(side, side, st.integers(1, 5), st.integers(1, 5)), min_size=1, max_size=7
)


@given(shapes, st.floats(0, 1))
def test_counts_are_those_of_the_epsilon_search_rounded(shapes, density):
    masks = erk(nn.Sequential(*map(module_of, shapes)), density, generator=torch.Generator().manual_seed(0))
    # The search meets density * N, the counts its rounding: half a weight more or less to share.
    slack = 1.5 + 1e-6
    for mask, expected in zip(masks.values(), epsilon_search(shapes, density), strict=True):
        assert abs(int(mask.sum()) - expected * mask.numel()) < slack


def test_counts_worked_by_hand():
    """3 x 3 convolutions 3-16 and 16-32 and a 32 x 10 head at density 0.1, by hand.

    Sizes 432, 4608, 320: 536 of 5360. Sums of the sides 25, 54, 42, of 121: 110.7, 239.2, 186.0; none is full.
    """
    model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.Conv2d(16, 32, 3), nn.Linear(32, 10))
    assert counts_of(erk(model, 0.1)) == {"0": 111, "1": 239, "2": 186}


def test_counts_worked_by_hand_where_layers_are_full():
    """The same at density 0.3: 1608 of 5360.

    25 : 54 : 42 would be 332.2, 717.6, 558.1 > 320: the head is full, and 1288 are left for 25 : 54, which is
    407.6 and 880.4. At density 0.35, 1876: 1556 left, 492.4 > 432: the first one is full too, and the rest is 1124.
    """
    model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.Conv2d(16, 32, 3), nn.Linear(32, 10))
    assert counts_of(erk(model, 0.3)) == {"0": 408, "1": 880, "2": 320}
    assert counts_of(erk(model, 0.35)) == {"0": 432, "1": 1124, "2": 320}


def test_groups_count_by_the_stored_shape():
    """Depthwise 8 x 1 x 3 x 3 (sides 15, 72 weights) beside 8 x 8 x 1 x 1 (sides 18, 64): 33 of 136."""
    model = nn.Sequential(nn.Conv2d(8, 8, 3, groups=8), nn.Conv2d(8, 8, 1))
    assert count_of(33 / 136, 136) == 33
    assert counts_of(erk(model, 33 / 136)) == {"0": 15, "1": 18}


@pytest.mark.parametrize("module", [nn.Conv1d(6, 5, 3), nn.Conv3d(6, 5, (1, 2, 3)), nn.ConvTranspose2d(6, 5, 3)])
def test_kernels_of_any_dimension_count_all_their_sides(module):
    """Beside a matrix whose sides have the same sum, such a layer has the same count."""
    total = sum(module.weight.shape)
    model = nn.Sequential(module, nn.Linear(total - 10, 10))
    counts = counts_of(erk(model, 2 * total / (module.weight.numel() + (total - 10) * 10)))
    assert counts == {"0": total, "1": total}


def test_coins_of_the_released_code_have_the_densities_as_their_means():
    model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.Conv2d(16, 32, 3), nn.Linear(32, 10))
    generator = torch.Generator().manual_seed(0)
    draws = [counts_of(erk(model, 0.3, generator=generator, compat="paper-code")) for _ in range(300)]
    means = {name: sum(draw[name] for draw in draws) / 300 for name in draws[0]}
    assert means["2"] == 320
    assert abs(means["0"] - 408) < 5 * (408 * (1 - 408 / 432) / 300) ** 0.5
    assert abs(means["1"] - 880) < 5 * (880 * (1 - 880 / 4608) / 300) ** 0.5
    assert len({draw["1"] for draw in draws}) > 50
