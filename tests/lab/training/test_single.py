import copy
import dataclasses
from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrize

from contracts.models import MODELS
from lab.training.recorded import Recorded
from orthosparse import masks_of, replace_masks, sparsify
from orthosparse.lab.seeds import fenced
from orthosparse.lab.training import fit
from orthosparse.lab.training.recipe import Recipe
from orthosparse.lab.training.single import is_fused, make_optimizer
from orthosparse.lab.training.step import Stepper
from orthosparse.masking.deferred import DeferredMasks


def _sparse(name):
    model = MODELS[name].make()
    sparsify(model, 0.4, distribution="uniform", scheme="base", generator=torch.Generator().manual_seed(0))
    return model


def _linear():
    """One row of three weights, the middle one masked."""
    model = nn.Sequential(nn.Linear(3, 1, bias=False))
    sparsify(model, 1.0, distribution="uniform", scheme="base", generator=torch.Generator().manual_seed(0))
    replace_masks(model, {"0": torch.tensor([[True, False, True]])})
    return model, model[0].parametrizations.weight.original


def _late(model, **options):
    return DeferredMasks(model, torch.optim.SGD(model.parameters(), lr=0.1, **options))


def _bits(tensors):
    return [tensor.detach().view(torch.int32) for tensor in tensors]


def _gradients(model, batch, masks):
    with fenced(0), masks:  # dropout draws from the global generator
        functional.cross_entropy(model(batch[0]), batch[1]).backward()
    return _bits(parameter.grad for parameter in model.parameters() if parameter.grad is not None)


@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_those_of_the_masked_network_to_the_last_bit(name):
    model, batch = _sparse(name), MODELS[name].batch()
    late = copy.deepcopy(model)
    expected, found = _gradients(model, batch, nullcontext()), _gradients(late, batch, _late(late))
    assert len(found) == len(expected) > 0
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_a_gradient_that_is_infinite_off_the_mask_is_zero_there(dtype):
    model, _ = _linear()
    model.to(dtype)
    weight = model[0].parametrizations.weight.original
    with _late(model):
        weight.grad = torch.tensor([[2.0, torch.inf, -3.0]], dtype=dtype)
    assert weight.grad.tolist() == [[2.0, 0.0, -3.0]]


def test_inside_the_block_the_weight_is_the_parameter_itself_and_afterwards_it_is_masked():
    model, weight = _linear()
    with _late(model):
        assert model[0].weight is weight
    weight.data.fill_(1.0)
    assert model[0].weight.tolist() == [[1.0, 0.0, 1.0]]


def test_what_others_write_off_the_mask_is_not_used():
    model, weight = _linear()
    late = _late(model)
    with late:
        pass
    with torch.no_grad():
        weight.fill_(5.0)
    with late:
        assert model[0].weight.tolist() == [[5.0, 0.0, 5.0]]


def test_a_mask_that_has_moved_is_followed():
    model, weight = _linear()
    late = _late(model)
    with late:
        weight.grad = torch.ones(1, 3)
    replace_masks(model, {"0": torch.tensor([[False, True, True]])})
    with late:
        weight.grad = torch.ones(1, 3)
    assert weight.grad.tolist() == [[0.0, 1.0, 1.0]]
    assert model[0].weight[0, 0] == 0


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_what_an_optimizer_remembers_of_another_mask_is_not_used(momentum):
    model, weight = _linear()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=momentum)
    late = DeferredMasks(model, optimizer)
    for step in range(4):
        with late:
            model(torch.ones(1, 3)).sum().backward()
        optimizer.step()
        late.trust()
        if step == 0:
            replace_masks(model, {"0": torch.tensor([[False, True, True]])})  # the optimizer does not know
    assert bool(weight[0, 0] != 0) == bool(momentum)
    with late:
        assert model[0].weight[0, 0] == 0


def test_an_error_inside_the_block_leaves_the_masks_in_place():
    model, weight = _linear()
    with pytest.raises(KeyError), _late(model):
        raise KeyError
    weight.data.fill_(1.0)
    assert model[0].weight.tolist() == [[1.0, 0.0, 1.0]]


def test_a_mask_below_another_parametrization_stays_in_place():
    class Doubled(nn.Module):
        def forward(self, weight):
            return 2 * weight

    model, weight = _linear()
    parametrize.register_parametrization(model[0], "weight", Doubled())
    with torch.no_grad():
        weight.fill_(1.0)
    with _late(model):
        assert model[0].weight.tolist() == [[2.0, 0.0, 2.0]]


def test_a_layer_without_a_gradient_is_left_alone():
    model, weight = _linear()
    weight.requires_grad_(False)
    with _late(model):
        model(torch.ones(1, 3))
    assert weight.grad is None


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"precision": "fp64"},
        {"precision": "bf16"},
        {"optimizer": "adamw"},
        {"accumulate": 3},
        {"clip": 0.1},
        {"dynamic": "rigl", "every": 3},
        {"dynamic": "set", "every": 4},
    ],
    ids=str,
)
def test_a_run_is_the_same_to_the_last_bit_as_with_masks_in_place(assembled, same_weights, monkeypatch, changes):
    late = assembled(**changes)
    fit(late)
    monkeypatch.setattr("orthosparse.lab.training.single._may_defer", lambda fabric, recipe: False)
    plain = assembled(**changes)
    fit(plain)
    assert same_weights(late.networks.network, plain.networks.network)
    assert [{**entry, "seconds": 0} for entry in late.histories[0]] == [
        {**entry, "seconds": 0} for entry in plain.histories[0]
    ]


def test_parameters_are_exactly_zero_off_the_mask_after_every_step(assembled):
    state = assembled(dynamic="rigl", every=3)
    stepper = Stepper(state)
    originals = {
        name: state.networks.network.get_submodule(name).parametrizations.weight.original for name in ("fc1", "fc2")
    }
    for images, labels in state.loader.epoch(0):
        stepper(images, labels)
        masks = masks_of(state.networks.network)
        assert all(not weight[~masks[name]].any() for name, weight in originals.items())


def _in_a_graph(state, masks):
    stepper = Stepper(state, graph=False)
    stepper._graphed = Recorded(stepper._captured)
    assert (state.networks._deferred is not None) == masks
    return stepper


@pytest.mark.parametrize(
    "changes", [{}, {"dynamic": "rigl", "every": 4}, {"dynamic": "set", "every": 5}, {"accumulate": 2}]
)
def test_a_graph_that_masks_gradients_trains_to_the_same_bits(assembled, same_weights, changes):
    plain, graphed = assembled(**changes), assembled(**changes)
    for state, stepper in ((plain, Stepper(plain)), (graphed, _in_a_graph(graphed, masks=True))):
        state.set_rate()
        for images, labels in state.loader.epoch(0):
            stepper(images, labels)
    assert stepper._graphed.replays > 5
    assert torch.equal(plain.records.values, graphed.records.values)
    assert same_weights(plain.networks.network, graphed.networks.network)


def test_a_graph_that_masks_gradients_follows_what_others_write(assembled, same_weights):
    plain, graphed = assembled(), assembled()
    for state, stepper in ((plain, Stepper(plain)), (graphed, _in_a_graph(graphed, masks=True))):
        state.set_rate()
        for step, (images, labels) in enumerate(state.loader.epoch(0)):
            if step == 8:
                masks = {name: mask.roll(1, 1) for name, mask in masks_of(state.networks.network).items()}
                replace_masks(state.networks.network, masks)
            if step == 11:
                with torch.no_grad():
                    for parameter in state.networks.network.parameters():
                        parameter.add_(0.01)
            stepper(images, labels)
    assert stepper._graphed.replays > 5
    assert torch.equal(plain.records.values, graphed.records.values)
    assert same_weights(plain.networks.network, graphed.networks.network)


RECIPE = Recipe(epochs=1, lr=0.1, weight_decay=0.01)
LAMB = pytest.param("lamb", marks=pytest.mark.torchvision)


def _parameters(generator):
    return [nn.Parameter(torch.randn(shape, generator=generator)) for shape in ((4, 3), (4,))]


def test_sgd_is_torchs_nesterov_sgd_with_decay_on_everything(generator):
    ours = _parameters(generator)
    theirs = [nn.Parameter(p.detach().clone()) for p in ours]
    optimizers = [
        make_optimizer(RECIPE, ours),
        torch.optim.SGD(theirs, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    ]
    for _ in range(5):
        for parameters, optimizer in zip((ours, theirs), optimizers, strict=True):
            optimizer.zero_grad()
            sum((p**2).sum() for p in parameters).backward()
            optimizer.step()
    torch.testing.assert_close(ours, theirs)


def test_the_rate_can_change_in_place(generator):
    parameters = _parameters(generator)
    optimizer = make_optimizer(RECIPE, parameters)
    optimizer.param_groups[0]["lr"].fill_(0.0)
    before = [p.detach().clone() for p in parameters]
    sum((p**2).sum() for p in parameters).backward()
    optimizer.step()
    torch.testing.assert_close(parameters, before)


@pytest.mark.parametrize("name", ["sgd", "adamw", LAMB])
def test_decay_leaves_vectors_out_where_the_recipe_says_so(generator, name):
    recipe = dataclasses.replace(RECIPE, optimizer=name, decay_vectors=False)
    matrices, vectors = make_optimizer(recipe, _parameters(generator)).param_groups
    assert (matrices["weight_decay"], vectors["weight_decay"]) == (0.01, 0.0)
    assert [p.dim() for group in (matrices, vectors) for p in group["params"]] == [2, 1]


@pytest.mark.parametrize("name", ["sgd", "adamw", LAMB])
def test_only_optimizers_with_a_rate_on_the_device_are_fused(generator, name):
    optimizer = make_optimizer(dataclasses.replace(RECIPE, optimizer=name), _parameters(generator))
    assert is_fused(optimizer) == (name != "lamb")


@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_a_fused_optimizer_that_is_told_of_an_infinity_changes_nothing(generator, name):
    parameters = _parameters(generator)
    optimizer = make_optimizer(dataclasses.replace(RECIPE, optimizer=name), parameters)
    before = [p.detach().clone() for p in parameters]
    for found, moved in ((1.0, False), (0.0, True)):
        optimizer.found_inf = torch.tensor(found)
        sum((p**2).sum() for p in parameters).backward()
        optimizer.step()
        assert any(not torch.equal(p, b) for p, b in zip(parameters, before, strict=True)) == moved
