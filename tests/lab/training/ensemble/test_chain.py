"""Forward and backward of the chain against autograd on each network alone."""

import pytest
import torch

from orthosparse.lab.models import ACTIVATIONS, build
from orthosparse.lab.training.ensemble.chain import Chain
from orthosparse.lab.training.ensemble.slab import Slab
from orthosparse.lab.training.ensemble.stages import Stage, as_rows, stages_of
from orthosparse.lab.training.ensemble.ways import Ways

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


def chain_of(networks, shape, ways, dtype=torch.float64):
    stages = stages_of(networks[0], shape)
    slabs = [Slab(stage, len(networks), dtype, CPU) for stage in stages if isinstance(stage, Stage)]
    for member, network in enumerate(networks):
        for slab in slabs:
            slab.fill(member, network.state_dict())
    compute = torch.float64 if dtype == torch.float64 else torch.bfloat16
    return Chain(stages, slabs, compute, ways), slabs


def gradients_of(slabs, member):
    return {
        f"{name}.{kind}": slab.stage.weight_of(leaf.gradient[layer, member])
        if kind == "weight"
        else leaf.gradient[layer, member]
        for slab in slabs
        for kind, leaf in (("weight", slab.weight), ("bias", slab.bias))
        for layer, name in enumerate(slab.stage.names)
    }


def check(name, ways, generator, activation="tanh"):
    shape, networks = networks_of(name, generator, activation)
    images = torch.randn(MEMBERS, BATCH, *shape, generator=generator, dtype=torch.float64)
    weights = torch.randn(MEMBERS, BATCH, CLASSES, generator=generator, dtype=torch.float64)
    chain, slabs = chain_of(networks, shape, ways)
    with torch.no_grad():
        rows = as_rows(images, chain.stages)
        logits, kept = chain.ahead(rows)
        assert torch.equal(logits, chain.logits(rows))
        chain.back(weights, kept)
    for member, network in enumerate(networks):
        expected = network(images[member])
        (expected * weights[member]).sum().backward()
        torch.testing.assert_close(logits[member], expected.detach(), rtol=1e-10, atol=1e-12)
        found = gradients_of(slabs, member)
        assert found.keys() == dict(network.named_parameters()).keys()
        for parameter, value in network.named_parameters():
            scale = float(value.grad.abs().max())
            torch.testing.assert_close(found[parameter], value.grad, rtol=1e-9, atol=1e-10 * scale + 1e-30)


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("convolution", ["gather", "native"])
@pytest.mark.parametrize("name", NETWORKS)
def test_every_way_gives_the_gradients_of_autograd(name, convolution, recompute, generator):
    check(name, Ways(convolution, recompute), generator)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_activation_is_known_by_its_output(activation, generator):
    check("cnn1000", Ways(), generator, activation)
    check("mlp", Ways(), generator, activation)


def test_products_in_bfloat16_fill_float32_gradients(generator):
    shape, networks = networks_of("cnn1000", generator)
    images = torch.randn(MEMBERS, BATCH, *shape, generator=generator)
    found = {}
    for convolution in ("gather", "native"):
        chain, slabs = chain_of([n.float() for n in networks], shape, Ways(convolution), torch.float32)
        with torch.no_grad():
            logits, kept = chain.ahead(as_rows(images, chain.stages).bfloat16())
            chain.back(torch.ones_like(logits), kept)
        assert logits.dtype == torch.bfloat16
        found[convolution] = gradients_of(slabs, 0)
        assert all(value.dtype == torch.float32 for value in found[convolution].values())
    exact = networks[0](images[0])
    exact.sum().backward()
    for name, value in networks[0].named_parameters():
        for way in found.values():
            # Eight bits of mantissa through nine layers.
            assert float((way[name] - value.grad).norm()) < 0.05 * float(value.grad.norm())


def test_a_recomputing_chain_keeps_the_samples_of_every_fiftieth_layer_alone(generator):
    shape, networks = networks_of("mlp", generator)
    rows = torch.zeros(MEMBERS, BATCH, 16, dtype=torch.float64)
    kept = {}
    for recompute in (False, True):
        chain, _ = chain_of(networks, shape, Ways(recompute=recompute))
        with torch.no_grad():
            _, (_, inner, _) = chain.ahead(rows)
        kept[recompute] = inner[1]
    assert kept[False].shape[0] == 118
    assert len(kept[True]) == 3  # 118 layers in chunks of 50


def test_an_unknown_way_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="convolution: expected one of gather, native"):
        Ways("winograd")
