"""Forms of the whole network."""

import torch
from torch import nn

from deploying.models import images, network
from orthosparse.deploying.copies import inference_copy
from orthosparse.deploying.networks import Networks


def networks_of(model, x, tolerance=1e-9):
    return Networks(inference_copy(model, None), ((x,), {}), tolerance)


def test_a_network_that_computes_something_else_is_refused_with_its_difference():
    found = networks_of(nn.Sequential(nn.Linear(3, 3)), torch.ones(1, 3))
    assert not found.add("other", nn.Sequential(nn.Linear(3, 3)))
    assert set(found.by_name) == {"eager"}
    assert found.notes[0].startswith("other: refused, outputs differ by ")


def test_channels_last_is_for_pictures_alone(generator):
    perceptron = networks_of(nn.Sequential(nn.Linear(3, 3)), torch.ones(1, 3))
    perceptron.add_channels_last()
    assert set(perceptron.by_name) == {"eager"}
    found = networks_of(network("plain", generator), images(generator))
    found.add_channels_last()
    assert "channels-last" in found.by_name


def test_networks_of_pictures_and_of_volumes_have_every_form(generator):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Unflatten(1, (2, 2)), nn.Conv3d(2, 3, (1, 3, 3))).eval()
    networks = networks_of(model, torch.randn(2, 3, 8, 8, generator=generator), 1e-4)
    networks.add_channels_last()
    networks.add_shrunk()
    assert networks.by_name.keys() == {"eager", "channels-last", "shrunk dense"}
    assert networks.by_name["channels-last"][0].weight.is_contiguous(memory_format=torch.channels_last)
    assert networks.by_name["channels-last"][3].weight.is_contiguous()


def test_the_base_of_sparse_layers_selects_no_channels(generator):
    found = networks_of(network("residual", generator), images(generator))
    found.add_shrunk()
    targets = {node.target for node in found.base.graph.nodes}
    assert torch.index_select not in targets
    assert found.removed["deployed"]
    assert sum(found.removed["shrunk dense"].values()) >= sum(found.removed["deployed"].values())


def test_a_network_that_does_not_compile_is_left_out_with_the_reason(monkeypatch):
    found = networks_of(nn.Sequential(nn.Linear(3, 3)), torch.ones(1, 3))

    def broken(*args, **kwargs):
        raise RuntimeError("no compiler")

    monkeypatch.setattr(nn.Module, "compile", lambda self, **_: vars(self).update(_compiled_call_impl=broken))
    found.add_compiled("compiled", found.by_name["eager"])
    assert found.notes == ["compiled: torch.compile fails: RuntimeError: no compiler"]
    assert set(found.by_name) == {"eager"}


def test_networks_are_timed_without_gradients():
    class Watched(nn.Linear):
        def forward(self, x):
            seen.append(torch.is_inference_mode_enabled())
            return super().forward(x)

    seen = []
    found = networks_of(nn.Sequential(Watched(3, 3)), torch.ones(1, 3))
    assert set(found.times()) == {"eager"}
    assert all(seen)
