import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from contracts.seeded import seeded
from orthosparse.init import sparse_delta_orthogonal_, sparse_orthogonal_
from orthosparse.schemes._live import fill_live_

sizes = st.integers(1, 9)


def masks_with_empty_channels(shape, seed):
    """A mask of random entries on some of the rows and some of the columns."""
    generator = seeded(seed)
    rows, cols = (torch.rand(side, generator=generator) < 0.6 for side in shape[:2])
    inside = (rows[:, None] & cols).view(*shape[:2], *[1] * (len(shape) - 2))
    return (torch.rand(shape, generator=generator) < 0.5) & inside


def symbol(kernel, frequency):
    """The matrix by which a convolution multiplies a wave: a sum over taps, written out."""
    phases = [(row * frequency[0] + col * frequency[1]) for row in range(3) for col in range(3)]
    waves = torch.tensor([complex(math.cos(phase), math.sin(phase)) for phase in phases], dtype=torch.complex128)
    return (kernel.flatten(2) * waves).sum(-1)


@given(sizes, sizes, st.integers(0, 999))
def test_live_rows_or_columns_of_a_matrix_are_orthonormal_and_the_others_empty(first, second, seed):
    goal, weight = masks_with_empty_channels((first, second), seed), torch.full((first, second), math.nan).double()
    count = int(goal.sum())
    mask = fill_live_(weight, fill=sparse_orthogonal_, align=goal, count=count, generator=seeded(seed))
    assert int(mask.sum()) == count
    assert not weight[~mask].any()
    rank = min(int(goal.any(1).sum()), int(goal.any(0).sum()))
    expected = [1.0] * rank + [0.0] * (min(first, second) - rank)
    assert torch.linalg.svdvals(weight).tolist() == pytest.approx(expected, abs=1e-12)


@given(sizes, sizes, st.integers(0, 999), st.sampled_from(["center", "random", "mask"]))
def test_a_convolution_of_live_channels_is_an_isometry_of_every_wave(first, second, seed, tap):
    goal, weight = masks_with_empty_channels((first, second, 3, 3), seed), torch.empty(first, second, 3, 3).double()
    count = int(goal.sum())
    options = {"count": count, "tap": tap, "generator": seeded(seed), "gain": 1.5}
    mask = fill_live_(weight, fill=sparse_delta_orthogonal_, align=goal, **options)
    assert int(mask.sum()) == count
    pairs = goal.flatten(2).any(-1)
    rank = min(int(pairs.any(1).sum()), int(pairs.any(0).sum()))
    expected = [1.5] * rank + [0.0] * (min(first, second) - rank)
    for frequency in ((0.0, 0.0), (0.7, 2.1), (math.pi, 1.0)):
        assert torch.linalg.svdvals(symbol(weight, frequency)).tolist() == pytest.approx(expected, abs=1e-12)


def test_an_empty_mask_gives_an_empty_weight():
    weight = torch.ones(3, 2)
    mask = fill_live_(weight, fill=sparse_orthogonal_, align=torch.zeros(3, 2, dtype=torch.bool), count=0)
    assert not mask.any()
    assert not weight.any()
