from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from orthosparse.distributions.uniform import uniform
from orthosparse.masks import counts_of


def chain(*widths):
    return nn.Sequential(*(nn.Linear(a, b) for a, b in pairwise(widths)))


@given(st.lists(st.integers(1, 12), min_size=2, max_size=6), st.floats(0, 1))
def test_every_layer_is_within_one_weight_of_the_density(widths, density):
    masks = uniform(chain(*widths), density, generator=torch.Generator().manual_seed(0))
    for name, count in counts_of(masks).items():
        assert abs(count - density * masks[name].numel()) < 1 + 1e-9


def test_a_layers_mask_depends_on_its_own_name_and_shape_alone():
    short, long = chain(4, 8, 6), chain(4, 8, 6, 10)
    masks = [uniform(model, 0.5, generator=torch.Generator().manual_seed(0)) for model in (short, long)]
    assert torch.equal(masks[0]["1"], masks[1]["1"])
    assert not torch.equal(masks[0]["0"].flatten()[:24], masks[0]["1"].flatten()[:24])


def test_every_position_is_as_likely_as_any_other():
    model = chain(4, 5)
    generator = torch.Generator().manual_seed(0)
    kept = sum(uniform(model, 0.3, generator=generator)["0"].double() for _ in range(2000)) / 2000
    assert (kept - 0.3).abs().max() < 5 * (0.3 * 0.7 / 2000) ** 0.5  # five standard deviations


def test_coins_of_the_released_code_have_the_density_as_their_mean():
    masks = uniform(chain(200, 300, 10), 0.2, generator=torch.Generator().manual_seed(0), compat="paper-code")
    for mask in masks.values():
        assert abs(mask.double().mean() - 0.2) < 5 * (0.2 * 0.8 / mask.numel()) ** 0.5
    assert int(masks["0"].sum()) != 12_000


@pytest.mark.parametrize("density", [0, 1])
def test_coins_at_the_ends_are_sure(density):
    masks = uniform(chain(30, 20), density, compat="paper-code")
    assert counts_of(masks) == {"0": 600 * density}


def test_a_model_without_storage_gets_masks_on_the_cpu():
    with torch.device("meta"):
        model = chain(6, 5)
    masks = uniform(model, 0.5)
    assert masks["0"].device.type == "cpu"
    assert counts_of(masks) == {"0": 15}
