"""What a module with masks does in its own way: functions that are applied to it, and its reset."""

import inspect

import pytest
import torch
from torch import nn

import orthosparse
from orthosparse import masking


def model_of():
    model = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Linear(6, 6, bias=False), nn.Linear(6, 2))
    orthosparse.sparsify(model, 0.5, exclude=["3"], seed=0)
    return model


def listeners(model):
    return [masked.holder.listener for masked in masking.masked_layers(model).values()]


@pytest.mark.parametrize(
    "write",
    [nn.init.zeros_, nn.init.xavier_uniform_, nn.init.orthogonal_, lambda w: w.detach().mul_(2.0)],
    ids=["zeros_", "xavier_uniform_", "orthogonal_", "mul_"],
)
def test_writing_into_a_masked_weight_by_apply_is_refused_since_it_is_lost(write):
    model = model_of()
    before = [value.clone() for value in masking.masks_of(model).values()], model[0].weight.detach().clone()

    def initialize(module):
        if isinstance(module, nn.Linear):
            write(module.weight)

    with torch.random.fork_rng(devices=[]), pytest.raises(RuntimeError, match=r"apply: .* changed weight of .*assign"):
        model.apply(initialize)
    assert torch.equal(model[0].weight, before[1])
    assert all(map(torch.equal, before[0], masking.masks_of(model).values()))
    assert listeners(model) == [None, None]


@pytest.mark.parametrize("layer", [nn.Linear(6, 6), nn.Conv2d(6, 6, 3), nn.ConvTranspose1d(6, 6, 3)], ids=repr)
def test_resetting_a_masked_weight_is_refused_since_it_is_lost(layer):
    model = nn.Sequential(layer)
    orthosparse.sparsify(model, 0.5, seed=0)
    before = model[0].weight.detach()
    with torch.random.fork_rng(devices=[]), pytest.raises(RuntimeError, match="reset_parameters: it changed weight of"):
        model[0].reset_parameters()
    assert torch.equal(model[0].weight, before)
    assert listeners(model) == [None]
    orthosparse.bake(model)
    with torch.random.fork_rng(devices=[]):
        model[0].reset_parameters()
    assert not torch.equal(model[0].weight, before)


def test_recurrent_layers_are_reset_on_their_masks():
    model = nn.Sequential(nn.LSTM(6, 6))
    orthosparse.sparsify(model, 0.5, seed=0)
    masks, before = masking.masks_of(model), model[0].weight_ih_l0.detach()
    with torch.random.fork_rng(devices=[]):
        model[0].reset_parameters()
    mask = masks["0.weight_ih_l0"]
    assert bool((model[0].weight_ih_l0[mask] != before[mask]).all())
    assert not model[0].weight_ih_l0[~mask].any()


def test_what_only_reads_or_assigns_or_writes_elsewhere_is_applied_to_every_module():
    model, seen = model_of(), []

    def visit(module):
        seen.append(type(module).__name__)
        if hasattr(module, "weight_mask"):
            module.weight = module.weight.detach() * 2.0
            changed = module.weight.detach().clone()
            changed.add_(1.0)
        if getattr(module, "bias", None) is not None:
            nn.init.ones_(module.bias)

    before = model[0].weight.detach().clone()
    assert model.apply(visit) is model
    assert torch.equal(model[0].weight, 2.0 * before)
    assert bool((model[0].bias == 1).all())
    assert {"ParametrizedLinear", "BatchNorm1d", "Linear", "Sequential"} <= set(seen)
    assert listeners(model) == [None, None]


def test_a_value_that_is_changed_and_then_assigned_is_not_lost():
    model = model_of()

    def doubled(module):
        if hasattr(module, "weight_mask"):
            weight = module.weight.detach()
            weight.mul_(2.0)
            module.weight = weight

    before = model[0].weight.detach().clone()
    model.apply(doubled)
    assert torch.equal(model[0].weight, 2.0 * before)


def test_what_a_function_raises_is_raised_and_nothing_listens_afterwards():
    model = model_of()

    def failing(module):
        raise KeyError(type(module).__name__)

    with pytest.raises(KeyError):
        model.apply(failing)
    assert listeners(model) == [None, None]


def test_baked_modules_are_plain_again():
    model = model_of()
    orthosparse.bake(model)
    model.apply(lambda module: nn.init.zeros_(module.weight) if isinstance(module, nn.Linear) else None)
    assert not model[0].weight.any()
    assert "apply" not in vars(type(model[0]))


def test_every_attribute_can_be_looked_at_as_torch_and_debuggers_do():
    model = model_of()
    assert dict(inspect.getmembers(model[0]))["weight"].shape == (6, 6)


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_a_traced_model_computes_the_same(generator):
    model = model_of().eval()
    x = torch.randn(4, 6, generator=generator)
    traced = torch.jit.trace(model, x)
    torch.testing.assert_close(traced(2 * x), model(2 * x), rtol=0, atol=0)
