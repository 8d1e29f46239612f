import pytest
import torch
import torch.distributed as dist
from torch import nn

from orthosparse.layers import find_layers
from orthosparse.masks import draw
from orthosparse.schemes import SCHEMES, _fill

OWN = {"ai": {"iterations": 20}, "base": {}, "eoi": {"depthwise": "center"}, "sao": {"degree": "nearest"}, "scaled": {}}


def tiny(generator):
    model = nn.Sequential(
        nn.Linear(6, 10), nn.Conv2d(10, 5, 3), nn.Conv2d(6, 6, 3, groups=3), nn.MultiheadAttention(6, 2)
    )
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3, generator=generator)
    return model


@pytest.mark.parametrize("scheme", SCHEMES)
def test_sharded_parameters_get_what_whole_ones_get(scheme, generator):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    plain, sharded = (tiny(torch.Generator().manual_seed(1)) for _ in range(2))
    masks = {
        name: draw(layer.shape, layer.numel // 2, generator=generator) for name, layer in find_layers(plain).items()
    }
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        fully_shard(sharded, mesh=init_device_mesh("cpu", (1,)))
        results = [
            SCHEMES[scheme](model, masks, bias_std=0.1, generator=torch.Generator().manual_seed(2), **OWN[scheme])
            for model in (plain, sharded)
        ]
        whole = {name: parameter.full_tensor() for name, parameter in sharded.named_parameters()}
    finally:
        dist.destroy_process_group()
    assert all(torch.equal(results[0][name], results[1][name]) for name in masks)
    for name, parameter in plain.named_parameters():
        assert torch.equal(parameter, whole[name]), name


def test_biases_have_the_deviation_asked_for():
    layer = find_layers(nn.Linear(1, 20_000))["weight"]
    _fill.fill_biases(layer, 0.25, seed=3)
    values = layer.module.bias.detach()
    # standard errors of mean and deviation: 0.25 / sqrt(20000) and 0.25 / sqrt(40000); five of them are allowed
    assert abs(float(values.mean())) < 5 * 0.00177
    assert abs(float(values.std()) - 0.25) < 5 * 0.00125


def test_masks_keep_their_order_and_leave_out_what_they_do_not_name():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2))
    ones = torch.ones(2, 2, dtype=torch.bool)
    assert list(_fill.match_layers(model, {"2": ones, "0": ones}, None)) == ["2", "0"]


def test_an_error_leaves_a_sharded_parameter_as_it_was():
    parameter = nn.Parameter(torch.ones(3, 3))
    with pytest.raises(KeyError), _fill.full_weight(parameter):
        raise KeyError
    assert torch.equal(parameter, torch.ones(3, 3))
