"""Layers of entries for inference."""

import copy

import pytest
import torch
from torch import nn

from orthosparse.deploying.modules import EntriesConv, EntriesLinear


def test_modules_hold_the_entries_alone_and_say_so(generator):
    layer = nn.Linear(6, 4).requires_grad_(False)
    layer.weight.mul_(torch.rand(4, 6, generator=generator) < 0.5)
    module = EntriesLinear(layer)
    assert module.values.shape == (1, int(layer.weight.count_nonzero()))
    assert set(module.state_dict()) == {"values", "bias", "row_starts", "columns"}
    assert repr(module) == f"EntriesLinear(4x6, bias=True, density={module.density:.4g})"
    assert not any(parameter.requires_grad for parameter in module.parameters())


def test_the_weight_is_that_of_the_layer(generator):
    for layer in (nn.Linear(5, 3), nn.Conv2d(4, 6, 3, groups=2), nn.Conv1d(4, 4, 2, groups=4)):
        layer.requires_grad_(False).weight.mul_(torch.rand(layer.weight.shape, generator=generator) < 0.5)
        module = EntriesLinear(layer) if isinstance(layer, nn.Linear) else EntriesConv(layer)
        assert torch.equal(module.weight, layer.weight)


def test_a_model_reads_the_same_sizes_of_a_module_as_of_the_layer():
    geometry = {"stride": 2, "padding": (1, 0), "dilation": (1, 2), "groups": 2}
    linear, conv = nn.Linear(5, 3).requires_grad_(False), nn.Conv2d(4, 6, (3, 2), **geometry).requires_grad_(False)
    for layer, module in ((linear, EntriesLinear(linear)), (conv, EntriesConv(conv))):
        sizes = {name: getattr(layer, name) for name in layer.__constants__ if name != "output_padding"}
        assert {name: getattr(module, name, None) for name in sizes} == sizes


def test_copies_and_loaded_states_compute_the_same():
    for layer, x in [(nn.Linear(5, 3), torch.ones(2, 5)), (nn.Conv2d(2, 3, 3), torch.ones(1, 2, 4, 4))]:
        layer.requires_grad_(False)
        module = EntriesLinear(layer) if isinstance(layer, nn.Linear) else EntriesConv(layer)
        twin = copy.deepcopy(module)
        twin.values.zero_()
        twin.load_state_dict(module.state_dict())
        assert torch.equal(twin(x), module(x))


@pytest.mark.parametrize("kind", [nn.Conv1d, nn.Conv2d, nn.Conv3d])
def test_a_convolution_takes_one_sample_without_a_batch_too(kind, generator):
    layer = kind(2, 3, 3, padding=1).requires_grad_(False)
    x = torch.randn(2, *[5] * (layer.weight.dim() - 2), generator=generator)
    torch.testing.assert_close(EntriesConv(layer)(x), layer(x))


def test_a_module_exports(generator):
    module = nn.Sequential(EntriesConv(nn.Conv2d(2, 3, 3).requires_grad_(False)), nn.Flatten())
    x = torch.randn(2, 2, 5, 5, generator=generator)
    torch.testing.assert_close(torch.export.export(module, (x,)).module()(x), module(x))


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning", "ignore::torch.jit.TracerWarning")
def test_a_traced_module_computes_the_same_on_other_inputs(generator):
    modules = {(5,): EntriesLinear(nn.Linear(5, 3)), (2, 6, 6): EntriesConv(nn.Conv2d(2, 3, 3, padding=1))}
    for shape, module in modules.items():
        example, x = torch.randn(2, *shape, generator=generator), torch.randn(4, *shape, generator=generator)
        torch.testing.assert_close(torch.jit.trace(module, example)(x), module(x))
