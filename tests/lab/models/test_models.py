"""The table: every network by name, from a generator alone, of the sizes the paper gives."""

import re
import sys

import pytest
import torch
from torch import nn

from contracts.states import assert_same, state_of
from orthosparse.lab.models import ACTIVATIONS, MODELS, build, check_fits
from orthosparse.layers import find_layers

CIFAR, MNIST = (3, 32, 32), (1, 28, 28)
SIZES = {  # classes, in_shape, prunable, all
    "mlp": (10, MNIST, 129_400, 130_010),
    "resnet32": (10, CIFAR, 464_432, 466_906),
    "resnet56": (10, CIFAR, 851_504, 855_770),
    "resnet110": (10, CIFAR, 1_722_416, 1_730_714),
    "vgg16c": (10, CIFAR, 11_307_712, 11_323_466),
}
# The paper's table of sparse sizes: density, weights left (rounded to two digits there).
LEFT = {
    "resnet32": (10, CIFAR, 0.1, 45e3),
    "resnet56": (10, CIFAR, 0.1, 85e3),
    "resnet110": (10, CIFAR, 0.1, 170e3),
    "vgg16c": (10, CIFAR, 0.1, 1.1e6),
    "efficientnet_b0": (200, (3, 64, 64), 0.1, 420e3),
    "mlp1000": (10, MNIST, 0.125, 2e6),
    "cnn1000": (10, CIFAR, 0.125, 18e6),
}
OF_TIMM = pytest.mark.torchvision
SMALL = {  # name: options that keep a test quick
    "mlp": {"depth": 3, "width": 8},
    "mlp1000": {"depth": 12, "width": 8},
    "cnn1000": {"depth": 9, "width": 4},
    "resnet32": {},
    "vgg16c": {},
}


def on_meta(name, classes, in_shape, **own):
    with torch.device("meta"):
        return MODELS[name](classes=classes, in_shape=in_shape, **own)


@pytest.mark.parametrize("name", SIZES)
def test_parameters_count_as_in_the_released_code(name):
    classes, in_shape, prunable, everything = SIZES[name]
    model = on_meta(name, classes, in_shape)
    assert sum(layer.numel for layer in find_layers(model).values()) == prunable
    assert sum(parameter.numel() for parameter in model.parameters()) == everything


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=OF_TIMM) if name == "efficientnet_b0" else name for name in LEFT]
)
def test_sparse_sizes_are_the_papers(name):
    classes, in_shape, density, left = LEFT[name]
    prunable = sum(layer.numel for layer in find_layers(on_meta(name, classes, in_shape)).values())
    assert density * prunable == pytest.approx(left, rel=0.04)


@pytest.mark.parametrize("name", SMALL)
def test_networks_return_logits_with_gradients_to_every_parameter(name, generator):
    model = build(name, classes=7, in_shape=CIFAR, generator=generator, **SMALL[name])
    logits = model(torch.randn(4, *CIFAR, generator=generator))
    assert logits.shape == (4, 7)
    assert not torch.allclose(logits.exp().sum(1), torch.ones(4))  # no log-softmax at the end
    logits.square().sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize("name", [*SMALL, pytest.param("timm:resnet18", marks=OF_TIMM)])
def test_a_generator_decides_the_weights_and_the_global_one_is_left_alone(name):
    options = {"classes": 5, "in_shape": CIFAR, **SMALL.get(name, {})}
    before = torch.get_rng_state()
    one, two = (build(name, generator=torch.Generator().manual_seed(seed), **options) for seed in (1, 1))
    other = build(name, generator=torch.Generator().manual_seed(2), **options)
    assert torch.equal(torch.get_rng_state(), before)
    assert_same(two.state_dict(), one.state_dict())
    first = next(iter(find_layers(one).values())).name
    assert not torch.equal(one.get_submodule(first).weight, other.get_submodule(first).weight)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("name", SMALL)
def test_every_activation_reaches_every_network(name, activation, generator):
    model = build(name, classes=3, in_shape=CIFAR, activation=activation, generator=generator, **SMALL[name])
    kinds = {type(module) for module in model.modules()}
    named = type(ACTIVATIONS[activation]())
    assert named in kinds
    assert not kinds & ({type(make()) for make in ACTIVATIONS.values()} - {named})


@pytest.mark.parametrize(("name", "kind"), [("mlp", nn.ReLU), ("mlp1000", nn.Tanh), ("cnn1000", nn.Tanh)])
def test_a_network_has_an_activation_of_its_own(name, kind, generator):
    model = build(name, classes=3, in_shape=CIFAR, generator=generator, **SMALL[name])
    assert any(isinstance(module, kind) for module in model)


@OF_TIMM
@pytest.mark.parametrize("name", ["efficientnet_b0", "resnet50", "deit3_small"])
def test_timm_networks_take_the_classes_and_the_images_of_the_data(name):
    model = on_meta(name, 13, (1, 64, 64))
    check_fits(model, (1, 64, 64), 13)


def test_unknown_names_are_answered_with_the_known_ones():
    known = ", ".join(sorted(MODELS))
    with pytest.raises(ValueError, match=rf"model: expected one of {known}, timm:NAME or path.*; got 'resnet33'"):
        build("resnet33", classes=10, in_shape=CIFAR)
    with pytest.raises(ValueError, match=r"activation: expected one of hardtanh, leaky_relu, .*; got 'swish'"):
        build("mlp", classes=10, in_shape=CIFAR, activation="swish")


@OF_TIMM
def test_unknown_names_of_timm_are_answered_with_similar_ones():
    with pytest.raises(ValueError, match=r"timm.list_models.*resnet50.*; got 'resnet5O'"):
        build("timm:resnet5O", classes=10, in_shape=CIFAR)


def test_an_activation_for_a_timm_network_is_refused():
    with pytest.raises(ValueError, match="activation: expected none for timm:efficientnet_b0"):
        build("efficientnet_b0", classes=10, in_shape=CIFAR, activation="tanh")


def test_without_timm_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(ImportError, match=r"pip install 'orthosparse\[timm\]'"):
        build("resnet50", classes=10, in_shape=CIFAR)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("mlp", {"in_shape": (28, 28)}, r"in_shape: expected \(channels, height, width\)"),
        ("mlp", {"in_shape": (0, 28, 28)}, "in_shape: .*all positive"),
        ("mlp", {"classes": 0}, "classes: expected at least 1; got 0"),
        ("mlp", {"depth": 1}, "depth: expected at least 2; got 1"),
        ("cnn1000", {"depth": 5}, "depth: expected at least 6; got 5"),
        ("cnn1000", {"depth": 9, "in_shape": (3, 4, 4)}, "in_shape: expected larger images for cnn1000"),
        pytest.param(
            "timm:vit_tiny_patch16_224", {}, "in_shape: expected images that the model takes.*224", marks=OF_TIMM
        ),
    ],
)
def test_sizes_that_make_no_network_are_refused(name, options, message):
    with pytest.raises(ValueError, match=message):
        build(name, **{"classes": 10, "in_shape": CIFAR, **options})


@pytest.mark.parametrize(
    ("name", "known", "meant"), [("mlp", "depth, width", "; did you mean 'depth'?"), ("resnet32", r"\(none\)", "")]
)
def test_an_option_that_a_network_does_not_take_is_answered_with_those_that_it_takes(name, known, meant):
    with pytest.raises(ValueError, match=rf"expected one that {name} takes: {known}; got 'dept'{re.escape(meant)}$"):
        build(name, classes=10, in_shape=CIFAR, dept=3)


@pytest.mark.parametrize("given", ["wide", 2.5])
def test_sizes_that_are_no_whole_numbers_are_named(given):
    with pytest.raises(TypeError, match=f"width: expected a whole number; got {given!r}"):
        build("mlp", classes=10, in_shape=CIFAR, width=given)


def test_a_model_is_checked_against_the_data_without_a_trace(generator):
    model = build("resnet32", classes=10, in_shape=CIFAR, generator=generator)
    before = state_of(model)
    check_fits(model, (3, 64, 64), 10)
    with pytest.raises(ValueError, match=r"in_shape: .*got \(1, 28, 28\)"):
        check_fits(model, MNIST, 10)
    with pytest.raises(ValueError, match="classes: expected as many as the model gives, 10; got 100"):
        check_fits(model, CIFAR, 100)
    assert_same(before, model.state_dict())
