from dataclasses import replace

import pytest
import torch

import orthosparse
from orthosparse import init, isometry
from orthosparse.lab.data import Loader
from orthosparse.lab.demo.networks import STARTS, build_starts, density_of, scaled_digits


def test_base_and_ai_share_their_masks_and_eoi_their_counts(starts):
    masks = {name: orthosparse.masks_of(network) for name, network in starts.items()}
    assert tuple(starts) == STARTS
    assert not masks["dense"]
    for layer, mask in masks["base"].items():
        assert torch.equal(mask, masks["ai"][layer])
        assert int(mask.sum()) == int(masks["eoi"][layer].sum())
    assert not torch.equal(masks["base"]["fc2"], masks["eoi"]["fc2"])


def test_base_has_the_dense_weights_and_only_eoi_is_orthogonal_at_the_critical_gain(starts):
    gain = isometry.critical_point("tanh").sigma_w
    weights = {name: orthosparse.find_layers(network)["fc3"].weight() for name, network in starts.items()}
    mask = orthosparse.masks_of(starts["base"])["fc3"]
    assert torch.equal(weights["base"], weights["dense"] * mask)
    scores = {name: isometry.orthogonality_score(weight, gain=gain) for name, weight in weights.items()}
    assert scores["eoi"] < 1e-5
    assert scores["dense"] < 1e-5
    assert scores["eoi"] < scores["ai"] < scores["base"]


def test_a_density_that_eoi_refuses_is_refused_before_ai_descends(small, digits, monkeypatch):
    asked = []
    monkeypatch.setattr(orthosparse, "sparsify", _listing(asked, orthosparse.sparsify))
    with pytest.raises(ValueError, match="density: expected at least"):
        build_starts(replace(small, density=0.0), digits.in_shape, digits.classes, seed=3)
    assert asked == ["base", "eoi"]


def _listing(asked, sparsify):
    return lambda *given, scheme, **options: asked.append(scheme) or sparsify(*given, scheme=scheme, **options)


def test_the_density_is_what_was_asked_over_all_layers(starts, small):
    sizes = [layer.numel for layer in orthosparse.find_layers(starts["dense"]).values()]
    assert density_of(starts["dense"]) == 1
    for name in STARTS[1:]:
        assert density_of(starts[name]) * sum(sizes) == pytest.approx(round(small.density * sum(sizes)))


def test_a_seed_decides_everything(starts, small, digits):
    same = build_starts(small, digits.in_shape, digits.classes, seed=3)
    other = build_starts(small, digits.in_shape, digits.classes, seed=4)
    for name, network in starts.items():
        assert all(torch.equal(a, b) for a, b in zip(network.parameters(), same[name].parameters(), strict=True))
        assert not torch.equal(network.fc1.bias, other[name].fc1.bias)


def test_the_first_layer_of_an_orthogonal_network_gets_the_variance_that_tanh_keeps(generator):
    data, point = scaled_digits(), isometry.critical_point("tanh")
    ((images, _),) = Loader(data.train, batch=len(data.train), train=False).epoch(0)
    weight = init.orthogonal_(torch.empty(64, 64), gain=point.sigma_w, generator=generator)
    assert (images.flatten(1) @ weight.T).square().mean() == pytest.approx(point.q, rel=0.01)
    assert len(data.train) == 1437
