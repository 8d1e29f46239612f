from itertools import pairwise

import pytest
import torch
from torch import nn

from orthosparse.counts import count_of
from orthosparse.distributions.dense_ends import dense_ends
from orthosparse.masks import counts_of


def mlp(*widths):
    return nn.Sequential(*(nn.Linear(a, b) for a, b in pairwise(widths)))


def test_inner_layers_have_exactly_the_density_and_the_ends_are_full():
    """SAO's profile at width 128 and degree 16: every inner matrix has 16 entries a row on average."""
    counts = counts_of(dense_ends(mlp(784, 128, 128, 128, 10), 16 / 128))
    assert counts == {"0": 784 * 128, "1": 16 * 128, "2": 16 * 128, "3": 1280}


def test_the_ends_of_a_convolutional_net_are_its_stem_and_its_classifier():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3), nn.Conv2d(8, 8, 3), nn.Linear(32, 10))
    assert counts_of(dense_ends(model, 0.125)) == {"0": 216, "1": 72, "2": 72, "3": 320}


def test_over_all_the_ends_are_paid_for_by_the_inner_layers():
    model = mlp(12, 16, 16, 16, 4)
    masks = dense_ends(model, 0.6, over="all")
    assert sum(counts_of(masks).values()) == count_of(0.6, 12 * 16 + 2 * 256 + 64)
    assert masks["0"].all()
    assert masks["3"].all()
    assert abs(counts_of(masks)["1"] - counts_of(masks)["2"]) <= 1


def test_over_all_refuses_a_density_that_the_ends_exceed():
    with pytest.raises(ValueError, match=r"density: expected enough for 0, 3 to stay dense; got 0\.1"):
        dense_ends(mlp(12, 16, 16, 16, 4), 0.1, over="all")


def test_the_ends_can_be_named():
    masks = dense_ends(mlp(4, 8, 8, 8, 4), 0.25, ends=["1", "3"])
    assert counts_of(masks) == {"0": 8, "1": 64, "2": 16, "3": 32}


def test_a_recurrent_model_begins_with_the_weights_that_meet_its_input():
    masks = dense_ends(nn.ModuleDict({"rnn": nn.LSTM(6, 8, num_layers=2), "head": nn.Linear(8, 3)}), 0.25)
    assert {name for name, mask in masks.items() if mask.all()} == {"rnn.weight_ih_l0", "head"}


def test_bad_arguments_are_named():
    model = mlp(4, 8, 8, 4)
    with pytest.raises(ValueError, match="over: expected one of inner, all; got 'everything'"):
        dense_ends(model, 0.5, over="everything")
    with pytest.raises(ValueError, match="ends: expected names of layers; 7 is none of 0, 1, 2"):
        dense_ends(model, 0.5, ends=["7"])
    with pytest.raises(ValueError, match="model: expected a layer between its ends; got 0, 1 alone"):
        dense_ends(mlp(4, 8, 4), 0.5)


def test_positions_are_drawn():
    masks = [dense_ends(mlp(4, 8, 8, 4), 0.5, generator=torch.Generator().manual_seed(seed)) for seed in (0, 0, 1)]
    assert torch.equal(masks[0]["1"], masks[1]["1"])
    assert not torch.equal(masks[0]["1"], masks[2]["1"])
