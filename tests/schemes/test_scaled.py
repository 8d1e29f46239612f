import pytest
import torch
from torch import nn

import orthosparse
from contracts.seeded import seeded
from orthosparse.layers import find_layers
from orthosparse.masks import draw
from orthosparse.schemes.scaled import scaled


def dense(module, seed=1):
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=seeded(seed)))
    return module


@pytest.mark.parametrize("structure", ["entries", "block:16"])
@pytest.mark.parametrize(
    ("module", "x"),
    [
        (nn.Linear(128, 64, bias=False), (512, 128)),
        (nn.Conv2d(32, 48, 1, bias=False), (64, 32, 3, 3)),
        (nn.Conv2d(16, 32, 3, padding=1, bias=False, padding_mode="circular"), (16, 16, 8, 8)),
        (nn.Conv2d(32, 32, 3, padding=1, groups=4, bias=False, padding_mode="circular"), (16, 32, 8, 8)),
    ],
    ids=["linear", "pixels", "kernel", "groups"],
)
def test_the_mean_square_of_the_outputs_is_that_of_the_dense_start(module, x, structure):
    """Over 60 masks and draws of a quarter of the weights: the mean ratio deviates by about 0.01."""
    inputs, ratios = torch.randn(x, generator=seeded(2)), []
    before = dense(module).weight.detach().clone()
    squares = float(module(inputs).detach().square().mean())
    for seed in range(60):
        with torch.no_grad():
            module.weight.copy_(before)
        layers = find_layers(module, structure=structure)
        (layer,) = layers.values()
        count = layer.unit * round(0.25 * layer.numel / layer.unit)
        mask = draw(layer.shape, count, block=layer.block, generator=seeded(seed))
        scaled(module, {"weight": mask}, layers=layers, generator=seeded(seed))
        ratios.append(float(module(inputs).detach().square().mean()) / squares)
    assert abs(sum(ratios) / 60 - 1) < 0.05


def test_values_are_normal_of_the_dense_weights_mean_square_over_the_density():
    module = dense(nn.Linear(400, 300))
    square = float(module.weight.detach().double().square().mean())
    mask = draw((300, 400), 12_000, generator=seeded())
    scaled(module, {"weight": mask}, generator=seeded(3))
    values = module.weight.detach()[mask].double() / (square / 0.1) ** 0.5
    # Of 12,000 normal numbers: mean, variance and the share within one deviation, each to five deviations.
    assert abs(float(values.mean())) < 5 / 12_000**0.5
    assert abs(float(values.square().mean()) - 1) < 5 * (2 / 12_000) ** 0.5
    assert abs(float((values.abs() < 1).double().mean()) - 0.6827) < 5 * (0.6827 * 0.3173 / 12_000) ** 0.5
    assert not module.weight.detach()[~mask].any()


def test_the_gain_is_that_of_the_dense_weights():
    one, two = dense(nn.Linear(8, 8)), dense(nn.Linear(8, 8))
    mask = {"weight": draw((8, 8), 20, generator=seeded())}
    scaled(one, mask, generator=seeded())
    scaled(two, mask, generator=seeded(), gain=3.0)
    assert torch.equal(one.weight, two.weight)


def test_layers_that_start_at_zero_stay_there_and_empty_ones_are_empty():
    module = nn.Linear(8, 8)
    nn.init.zeros_(module.weight)
    scaled(module, {"weight": draw((8, 8), 20, generator=seeded())})
    assert not module.weight.any()
    scaled(dense(module), {"weight": torch.zeros(8, 8, dtype=torch.bool)})
    assert not module.weight.any()


@pytest.mark.parametrize(("dtype", "value"), [(torch.float32, torch.nan), (torch.float16, 20_000.0)])
def test_weights_that_are_not_finite_or_would_not_be_are_named_and_stay(dtype, value):
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)).to(dtype)
    with torch.no_grad():
        model[1].weight.fill_(value)
    before = model[0].weight.clone()
    with pytest.raises(ValueError, match=r"model: expected weights whose standard deviation .*; '1' has"):
        orthosparse.sparsify(model, 0.25, scheme="scaled", distribution="uniform")
    assert torch.equal(model[0].weight, before)
