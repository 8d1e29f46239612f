"""The forms that a layer can have."""

import pytest
import torch
from torch import nn

from orthosparse.deploying.forms import fits_two_of_four, forms_of
from orthosparse.structures import tiled, two_of_four


def with_mask(layer, mask):
    layer.requires_grad_(False).weight.mul_(mask)
    return layer


@pytest.mark.parametrize(
    ("layer", "forms"),
    [
        (nn.Linear(8, 8), {"dense", "entries"}),
        (nn.Conv2d(8, 8, 3, padding=1, stride=2), {"dense", "dense channels-last", "entries"}),
        (nn.Conv2d(8, 8, 3, groups=8), {"dense", "dense channels-last", "entries"}),
        (nn.Conv1d(8, 8, 3), {"dense", "entries"}),
        (nn.Conv2d(8, 8, 3, padding="same"), {"dense", "dense channels-last"}),
        (nn.Conv2d(8, 8, 3, padding=1, padding_mode="circular"), {"dense", "dense channels-last"}),
    ],
)
def test_the_forms_of_a_sparse_layer_compute_the_same(layer, forms, generator):
    layer = with_mask(layer, torch.rand(layer.weight.shape, generator=generator) < 0.3)
    found, note = forms_of("layer", layer)
    assert set(found) == forms
    assert bool(note) == ("entries" not in forms)
    x = torch.randn((2, 8, *[6] * (layer.weight.dim() - 2)), generator=generator)
    for module in found.values():
        torch.testing.assert_close(module(x), layer(x))


def test_blocks_are_found_in_the_weight(generator):
    grid = torch.tensor([[True, False, False], [False, False, True]])
    found, _ = forms_of("layer", with_mask(nn.Linear(96, 64), tiled(grid, 32, (64, 96))))
    assert set(found) == {"dense", "block:32", "entries"}
    x = torch.randn(5, 96, generator=generator)
    torch.testing.assert_close(found["block:32"](x), found["dense"](x))


@pytest.mark.parametrize(
    ("options", "sparse"), [({}, {"block:32", "entries"}), ({"padding": 1, "padding_mode": "circular"}, set())]
)
def test_blocks_of_a_pointwise_convolution_are_a_form_where_it_is_not_padded(options, sparse, generator):
    layer = with_mask(nn.Conv2d(64, 64, 1, **options), tiled(torch.eye(2), 32, (64, 64, 1, 1)))
    found, _ = forms_of("layer", layer)
    assert set(found) == {"dense", "dense channels-last"} | sparse
    x = torch.randn(2, 64, 3, 3, generator=generator)
    for module in found.values():
        torch.testing.assert_close(module(x), layer(x))


def test_weights_of_value_zero_do_not_hide_a_structure(generator):
    layer = with_mask(
        nn.Linear(96, 64), tiled(torch.tensor([[True, False, False], [False, False, True]]), 32, (64, 96))
    )
    layer.weight[:2, :9], layer.weight[40, 70:] = 0, 0
    found, _ = forms_of("layer", layer)
    assert set(found) == {"dense", "block:32", "entries"}
    x = torch.randn(5, 96, generator=generator)
    torch.testing.assert_close(found["block:32"](x), layer(x))

    rows, cols = two_of_four((8, 12), generator)
    mask = rows[:, None] == cols
    mask[3, mask[3].nonzero()[0]] = False
    assert fits_two_of_four(mask)
    assert not fits_two_of_four(~mask)
    assert not fits_two_of_four(mask[:, :10])


def test_entries_that_fill_few_of_their_blocks_are_no_blocks(generator):
    found, _ = forms_of("layer", with_mask(nn.Linear(64, 64), torch.rand(64, 64, generator=generator) < 0.4))
    assert set(found) == {"dense", "entries"}


def test_dense_weights_and_other_types_have_dense_forms_alone():
    assert forms_of("layer", nn.Linear(8, 8).requires_grad_(False))[1] == "density 1.00"
    half = with_mask(nn.Linear(8, 8), torch.eye(8)).half()
    assert forms_of("layer", half) == ({"dense": half}, "no kernel for entries on cpu in float16")
