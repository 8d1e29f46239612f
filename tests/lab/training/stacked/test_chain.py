"""Forward and backward of the chain against autograd on each network alone."""

from collections import OrderedDict

import pytest
import torch
from torch import nn

from orthosparse.lab.models import ACTIVATIONS, build
from orthosparse.lab.models.stages import as_rows, stages_of
from orthosparse.lab.training.stacked.assembly import chain_of

MEMBERS, BATCH, CLASSES = 3, 5, 4
CPU = torch.device("cpu")
# Odd sides: strides of 2 then round up, and the pool leaves a rest.
NETWORKS = {
    "mlp": ((1, 4, 4), {"depth": 120, "width": 6}),
    "two layers": ((2, 3, 3), {"depth": 2, "width": 5}),
    "cnn1000": ((3, 9, 10), {"depth": 9, "width": 4}),
    "deep cnn": ((3, 8, 8), {"depth": 58, "width": 3}),
}
MODELS = {"mlp": "mlp", "two layers": "mlp", "cnn1000": "cnn1000", "deep cnn": "cnn1000"}


def networks_of(name, generator, activation="tanh"):
    shape, options = NETWORKS[name]
    made = {"classes": CLASSES, "in_shape": shape, "activation": activation, "generator": generator, **options}
    return shape, [build(MODELS[name], **made).double() for _ in range(MEMBERS)]


def filled(networks, shape, dtype=torch.float64):
    stages = stages_of(networks[0], shape)
    compute = torch.float64 if dtype == torch.float64 else torch.bfloat16
    chain, slabs = chain_of(stages, len(networks), (dtype, compute), CPU)
    for place, network in enumerate(networks):
        for slab in slabs:
            slab.fill(place, network.state_dict())
    return chain, slabs, stages


def gradients_of(slabs, place):
    return {
        entry: slab.stage.weight_of(slab.named[name].gradient[layer, place])
        if name == "weight"
        else slab.named[name].gradient[layer, place]
        for slab in slabs
        for entry, name, layer in slab.entries()
    }


def check_networks(networks, shape, generator, classes=CLASSES):
    images = torch.randn(MEMBERS, BATCH, *shape, generator=generator, dtype=torch.float64)
    weights = torch.randn(MEMBERS, BATCH, classes, generator=generator, dtype=torch.float64)
    chain, slabs, stages = filled(networks, shape)
    with torch.no_grad():
        rows = as_rows(images, stages)
        logits, saved = chain.forward(rows)
        chain.backward(weights, saved)
        assert not saved
        for slab in slabs:
            slab.update_statistics(torch.ones(MEMBERS, dtype=torch.bool))
        tested = chain.infer(rows)
    for place, network in enumerate(networks):
        expected = network.train()(images[place])
        (expected * weights[place]).sum().backward()
        torch.testing.assert_close(logits[place], expected.detach(), rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(tested[place], network.eval()(images[place]).detach(), rtol=1e-9, atol=1e-11)
        found = gradients_of(slabs, place)
        assert found.keys() == dict(network.named_parameters()).keys()
        whole = max(float(value.grad.abs().max()) for value in network.parameters())
        for parameter, value in network.named_parameters():
            # A bias before a normalisation has no gradient but what rounding leaves.
            scale = max(float(value.grad.abs().max()), 1e-4 * whole)
            torch.testing.assert_close(found[parameter], value.grad, rtol=1e-9, atol=1e-10 * scale + 1e-30)
        state = {name: tensor for slab in slabs for name, tensor in slab.state_of(place)}
        assert state.keys() == network.state_dict().keys()
        for name, tensor in network.named_buffers():
            torch.testing.assert_close(state[name], tensor, rtol=1e-12, atol=1e-12)


def check(name, generator, activation="tanh"):
    shape, networks = networks_of(name, generator, activation)
    check_networks(networks, shape, generator)


@pytest.mark.parametrize("name", NETWORKS)
def test_gradients_are_those_of_autograd(name, generator):
    check(name, generator)


def small_vgg(generator, activation, *, side=8):
    """The layers of VGG in their order, with few channels: padded 1 x 1 convolutions, max pools, norms in the head."""
    act = ACTIVATIONS[activation]
    features = nn.Sequential(
        *(
            nn.Conv2d(3, 4, 3, padding=1),
            nn.BatchNorm2d(4),
            act(),
            nn.Conv2d(4, 6, 1, padding=1),
            nn.BatchNorm2d(6),
            act(),
        ),
        nn.MaxPool2d(2),
        *(nn.Conv2d(6, 5, 3, padding=1), nn.BatchNorm2d(5), act(), nn.MaxPool2d(2)),
    )
    width = 5 * ((side + 2) // 4) ** 2
    head = nn.Sequential(nn.Linear(width, 7), act(), nn.BatchNorm1d(7), nn.Linear(7, CLASSES))
    network = nn.Sequential(OrderedDict(features=features, flatten=nn.Flatten(), classifier=head)).double()
    for parameter in network.parameters():
        drawn = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        parameter.data.copy_(drawn * 0.5 if parameter.dim() > 1 else 1 + 0.3 * drawn)
    return network


@pytest.mark.parametrize("side", [8, 9])
@pytest.mark.parametrize("activation", ["relu", "tanh", "selu"])
def test_normalised_layers_and_max_pools_are_those_of_autograd(activation, side, generator):
    networks = [small_vgg(generator, activation, side=side) for _ in range(MEMBERS)]
    check_networks(networks, (3, side, side), generator)


def test_a_single_value_a_channel_is_refused_as_torch_does(generator):
    chain, _, stages = filled([small_vgg(generator, "relu")], (3, 8, 8))
    with pytest.raises(ValueError, match="expected more than one value a channel"):
        chain.forward(as_rows(torch.zeros(1, 1, 3, 8, 8, dtype=torch.float64), stages))


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_activation_is_known_by_its_output(activation, generator):
    check("cnn1000", generator, activation)
    check("mlp", generator, activation)


def test_products_in_bfloat16_fill_float32_gradients(generator):
    shape, networks = networks_of("cnn1000", generator)
    images = torch.randn(MEMBERS, BATCH, *shape, generator=generator)
    chain, slabs, stages = filled([n.float() for n in networks], shape, torch.float32)
    with torch.no_grad():
        logits, saved = chain.forward(as_rows(images, stages).bfloat16())
        chain.backward(torch.ones_like(logits), saved)
    assert logits.dtype == torch.bfloat16
    found = gradients_of(slabs, 0)
    assert all(value.dtype == torch.float32 for value in found.values())
    exact = networks[0](images[0])
    exact.sum().backward()
    for name, value in networks[0].named_parameters():
        # Eight bits of mantissa through nine layers.
        assert float((found[name] - value.grad).norm()) < 0.05 * float(value.grad.norm())
