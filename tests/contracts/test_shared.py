"""Laws for models that use one module or tensor in several places: they are measured right and left as they were."""

import copy
import itertools

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from contracts.shared import SHARED, apart, parts_of, summed
from contracts.states import assert_same
from contracts.traces import differences, prepared, trace_of
from orthosparse import DISTRIBUTIONS, isometry
from orthosparse.layers import find_layers
from orthosparse.masking import attach
from orthosparse.masks import draw, top_k

HOMOGENEOUS = [name for name in SHARED if SHARED[name].homogeneous]

MEASURES = {
    "singular_values": lambda model, x, y: isometry.singular_values(model, x),
    "matrix_free": lambda model, x, y: isometry.singular_values(model, x, k=1, method="matrix_free"),
    "orthogonality_score": lambda model, x, y: isometry.orthogonality_score(model, x),
    "layer_singular_values": lambda model, x, y: isometry.layer_singular_values(model, x),
    "effective_density": lambda model, x, y: isometry.effective_density(model, x),
    "gradient_flow": lambda model, x, y: isometry.gradient_flow(model, None, (x, y)),
    "snip": lambda model, x, y: DISTRIBUTIONS["snip"](model, 0.5, batch=(x, y)),
    "snip_iterative": lambda model, x, y: DISTRIBUTIONS["snip_iterative"](model, 0.5, batch=(x, y), rounds=3),
    "grasp": lambda model, x, y: DISTRIBUTIONS["grasp"](model, 0.5, batch=(x, y)),
    "synflow": lambda model, x, y: DISTRIBUTIONS["synflow"](model, 0.5, batch=(x, y), rounds=3),
}


def drawn_masks(model, density=0.4, seed=5):
    generator = torch.Generator().manual_seed(seed)
    layers = find_layers(model)
    return {name: draw(layer.shape, int(density * layer.numel), generator=generator) for name, layer in layers.items()}


def made(name, *, masked=False):
    model = SHARED[name].make()
    if masked:
        attach(model, drawn_masks(model))
    return model


def in_float64(name):
    model, (x, y) = SHARED[name].make().double(), SHARED[name].batch()
    return model, x.double(), y


def keys_of(model):
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return {name: names[id(layer.parameter())] for name, layer in find_layers(model).items()}


def by_layer(model, tensors):
    return {name: tensors[key] for name, key in keys_of(model).items()}


def slopes(model, value):
    parameters = dict(model.named_parameters())
    return dict(zip(parameters, torch.autograd.grad(value, list(parameters.values())), strict=True))


def fits(name, measure):
    return measure != "synflow" or SHARED[name].homogeneous


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("name", "measure"), [pair for pair in itertools.product(SHARED, MEASURES) if fits(*pair)])
def test_no_measure_leaves_a_trace(name, measure, masked):
    model = prepared(made(name, masked=masked))
    before = trace_of(model)
    MEASURES[measure](model, *SHARED[name].batch())
    assert differences(before, trace_of(model)) == []


class Failing(nn.Module):
    def forward(self, x):
        raise ZeroDivisionError


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("name", HOMOGENEOUS)
def test_no_measure_that_fails_half_way_leaves_a_trace(name, measure):
    model = made(name, masked=True).append(Failing())
    before = trace_of(model)
    with pytest.raises(ZeroDivisionError):
        MEASURES[measure](model, *SHARED[name].batch())
    assert differences(before, trace_of(model)) == []


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", SHARED)
def test_singular_values_are_those_of_copies(name, training):
    model, x, _ = in_float64(name)
    model.train(training)
    expected = isometry.singular_values(apart(model), x).values
    torch.testing.assert_close(isometry.singular_values(model, x).values, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", SHARED)
def test_layers_are_scored_like_each_of_their_copies(name):
    model, x, _ = in_float64(name)
    spectra, scores = isometry.layer_singular_values(model, x), isometry.orthogonality_score(model, x)
    others = apart(model)
    assert len(scores) < len(find_layers(others))
    alike = {name: other for name, other in isometry.orthogonality_score(others, x).items() if name in scores}
    assert {name: score.score for name, score in scores.items()} == {name: each.score for name, each in alike.items()}
    for layer, values in isometry.layer_singular_values(others, x).items():
        if layer in spectra:
            assert torch.equal(spectra[layer].values, values.values)


@pytest.mark.parametrize("name", SHARED)
def test_a_weight_is_live_where_one_of_its_copies_is(name):
    model, x, _ = in_float64(name)
    masks = drawn_masks(model, density=0.3)
    attach(model, masks)
    found = isometry.effective_density(model, x)
    others = apart(model)
    each = by_layer_names(others, isometry.effective_density(others, x))
    for layer, key in keys_of(model).items():
        live = torch.stack([each[place] for place in parts_of(model)[key]]).any(0)
        assert torch.equal(found.layers[layer].live, live), layer
        assert live.any()


def by_layer_names(model, density):
    return {key: density.layers[name].live for name, key in keys_of(model).items()}


@pytest.mark.parametrize("name", SHARED)
def test_gradients_add_up_over_the_copies(name):
    model, x, y = in_float64(name)
    flow = isometry.gradient_flow(model, None, (x, y), step_size=0.1)
    before = summed(model, slopes(*loss_of(apart(model), x, y)))
    with torch.no_grad():
        moved = copy.deepcopy(model)
        for key, parameter in moved.named_parameters():
            parameter -= 0.1 * before[key]
    after = summed(model, slopes(*loss_of(apart(moved), x, y)))
    assert flow.norms == pytest.approx({k: float(v.norm()) for k, v in by_layer(model, before).items()}, rel=1e-12)
    assert flow.norms_after == pytest.approx({k: float(v.norm()) for k, v in by_layer(model, after).items()}, rel=1e-12)


def loss_of(model, x, y):
    return model, cross_entropy(model(x), y)


@pytest.mark.parametrize("name", SHARED)
def test_snip_adds_the_gradients_of_the_copies(name):
    model, x, y = in_float64(name)
    gradient = by_layer(model, summed(model, slopes(*loss_of(apart(model), x, y))))
    scores = {key: (layer.weight() * gradient[key]).abs() for key, layer in find_layers(model).items()}
    assert_same(DISTRIBUTIONS["snip"](model, 0.5, batch=(x, y)), top_k(scores, half_of(scores)))


@pytest.mark.parametrize("name", SHARED)
def test_grasp_multiplies_by_the_hessian_of_the_shared_weights(name):
    model, x, y = in_float64(name)
    layers = find_layers(model)
    leaves = [layer.parameter() for layer in layers.values()]
    value = cross_entropy(model(x) / 200, y)
    gradient = torch.autograd.grad(value, leaves, create_graph=True)
    along = sum((part * part.detach()).sum() for part in gradient)
    products = torch.autograd.grad(along, leaves)
    scores = {key: leaf.detach() * product for key, leaf, product in zip(layers, leaves, products, strict=True)}
    assert_same(DISTRIBUTIONS["grasp"](model, 0.5, batch=(x, y)), top_k(scores, half_of(scores)))


@pytest.mark.parametrize("name", HOMOGENEOUS)
def test_synflow_adds_the_flow_of_the_copies(name):
    model, x, _ = in_float64(name)
    others = apart(model).eval()
    with torch.no_grad():
        for parameter in others.parameters():
            parameter.abs_()
    flow = by_layer(model, summed(model, slopes(others, others(torch.ones_like(x[:1])).sum())))
    scores = {key: layer.weight().abs() * flow[key] for key, layer in find_layers(model).items()}
    assert_same(DISTRIBUTIONS["synflow"](model, 0.5, batch=(x, None), rounds=1), top_k(scores, half_of(scores)))


def half_of(scores):
    size = sum(score.numel() for score in scores.values())
    return (size + 1) // 2
