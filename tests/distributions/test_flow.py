"""The conservation law of SynFlow: what flows into a unit flows out of it."""

import torch
from torch import nn

from contracts.models import refilled
from orthosparse.distributions._flow import flow_of
from orthosparse.layers import find_layers


def scores_of(model, shape):
    layers = find_layers(model)
    ones = {name: torch.ones(layer.shape, dtype=torch.bool) for name, layer in layers.items()}
    with flow_of(model, layers, shape, nn.Identity(), 0) as flow:
        return flow.scores(ones), flow.total(), flow.total(2.0)


def test_every_layer_carries_all_of_the_flow():
    model = nn.Sequential(*(nn.Linear(a, b, bias=False) for a, b in ((5, 9), (9, 7), (7, 4))))
    scores, total, twice = scores_of(refilled(model, torch.Generator().manual_seed(0)), [5])
    for score in scores.values():
        assert abs(score.sum() / total - 1) < 1e-12
    assert twice == 2 * total  # doubling is exact in floating point


def test_what_flows_into_a_unit_flows_out_of_it():
    model = nn.Sequential(
        nn.Linear(5, 9, bias=False), nn.ReLU(), nn.Linear(9, 7, bias=False), nn.ReLU(), nn.Linear(7, 4)
    )
    scores, _, _ = scores_of(refilled(model, torch.Generator().manual_seed(0)), [5])
    torch.testing.assert_close(scores["0"].sum(1), scores["2"].sum(0), rtol=1e-12, atol=0)
    torch.testing.assert_close(scores["2"].sum(1), scores["4"].sum(0), rtol=1e-12, atol=0)


def test_channels_of_convolutions_conserve_the_flow_through_norm_and_pooling():
    model = nn.Sequential(
        nn.Conv2d(3, 6, 3, bias=False), nn.BatchNorm2d(6), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(6, 8, 3, bias=False),
        nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4),
    )  # fmt: skip
    refilled(model, torch.Generator().manual_seed(0))
    nn.init.zeros_(model[1].bias)  # a shift is flow that enters there
    scores, _, _ = scores_of(model, [3, 10, 10])
    torch.testing.assert_close(scores["0"].sum((1, 2, 3)), scores["4"].sum((0, 2, 3)), rtol=1e-12, atol=0)
    torch.testing.assert_close(scores["4"].sum((1, 2, 3)), scores["8"].sum(0), rtol=1e-12, atol=0)
    assert all(score.dtype == torch.float64 for score in scores.values())
