"""Stacked residual networks, forward and backward, against autograd on each network alone."""

import pytest
import torch

from contracts.states import assert_same
from lab.training.stacked.stacked import given_to, networks_of, passed, rows_of, stacked
from orthosparse.lab.models import ACTIVATIONS
from orthosparse.lab.training.stacked.slab import NormSlab

BATCH = 4
# Odd sides: strides of 2 then round up.
SHAPES = [(3, 8, 8), (3, 9, 7), (1, 5, 6)]


def doubled(shape, generator, **options):
    """Return networks in float64, their images, and the gradients of their logits."""
    networks = [network.double() for network in networks_of(shape, generator, **options)]
    images, weights = given_to(shape, BATCH, generator)
    return networks, images.double(), weights.double()


def alone(network, images, weights):
    """Return logits, gradients, running statistics, and logits as tested by them, of one network by autograd."""
    logits = network.train()(images)
    (logits * weights).sum().backward()
    gradients = {name: parameter.grad for name, parameter in network.named_parameters()}
    tested = network.eval()(images)
    return {"logits": logits.detach(), "tested": tested.detach(), **gradients, **dict(network.named_buffers())}


def of_member(found, slabs, member):
    """Return the same of a member, by the names that its network has."""
    own = {"logits": found["logits"][member], "tested": found["tested"][member]}
    for slab in slabs:
        for layer, name in enumerate(slab.stage.names):
            own[f"{name}.weight"] = slab.stage.weight_of(slab.weight.gradient[layer, member])
            if not isinstance(slab, NormSlab):
                own[f"{name}.bias"] = slab.bias.gradient[layer, member]
                continue
            norm = slab.norms.names[layer]
            learned = {"weight": slab.scale.gradient, "bias": slab.shift.gradient}
            kept = {"running_mean": slab.mean, "running_var": slab.var}
            own |= {f"{norm}.{kind}": tensor[layer, member] for kind, tensor in (learned | kept).items()}
            own[f"{norm}.num_batches_tracked"] = slab.steps[member]
    return own


def check_close(mine, theirs, tolerance=1e-9):
    assert mine.keys() == theirs.keys()
    for name, value in theirs.items():
        error = float((mine[name] - value).double().norm())
        assert error <= tolerance * float(value.double().norm()), name


def check(shape, generator, **options):
    networks, images, weights = doubled(shape, generator, **options)
    network, slabs = stacked(networks, shape, keep=torch.float64, compute=torch.float64)
    found = passed(network, slabs, images, weights)
    for member, single in enumerate(networks):
        check_close(of_member(found, slabs, member), alone(single, images[member], weights[member]))


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_gradients_and_statistics_are_those_of_autograd_for_every_activation(activation, generator):
    check((3, 9, 7), generator, activation=activation)


@pytest.mark.parametrize("shape", SHAPES)
def test_they_are_for_even_and_odd_sides_and_for_one_channel(shape, generator):
    check(shape, generator, activation="relu")


def test_they_are_with_several_blocks_a_stage(generator):
    check((3, 8, 8), generator, depth=20)


def test_gradients_off_the_masks_are_zero_and_the_others_stay(generator):
    shape = (3, 8, 8)
    networks, images, weights = doubled(shape, generator)
    network, slabs = stacked(networks, shape, keep=torch.float64, compute=torch.float64, masked=True)
    masked = passed(network, slabs, images, weights)
    plain = passed(*stacked(networks, shape, keep=torch.float64, compute=torch.float64), images, weights)
    for place, slab in enumerate(slabs):
        mine, theirs, off = masked[f"{place} weight"], plain[f"{place} weight"], slab.weight.off
        assert 0 < int(off.sum()) < off.numel()
        assert torch.equal(mine, theirs.masked_fill(off, 0.0))
        torch.testing.assert_close(masked[f"{place} weight norms"], mine.flatten(2).norm(dim=2))


def test_what_has_been_seen_while_testing_leaves_no_trace(generator):
    shape = (3, 8, 8)
    networks, images, _ = doubled(shape, generator)
    network, slabs = stacked(networks, shape, keep=torch.float64, compute=torch.float64)
    rows = rows_of(network, images)
    before = [dict(slab.state_of(0)) for slab in slabs]
    first = network.infer(rows)
    assert torch.equal(network.infer(rows), first)
    for slab, state in zip(slabs, before, strict=True):
        assert_same(dict(slab.state_of(0)), state)
    one = network.infer(rows[:, :1])
    torch.testing.assert_close(one, first[:, :1], rtol=1e-12, atol=1e-12)  # a batch is no part of a test


def test_products_in_bfloat16_fill_float32_gradients(generator):
    shape = (3, 8, 8)
    # A smooth activation: at a corner roundings would choose sides, and gradients jump.
    networks, images, weights = doubled(shape, generator, activation="tanh")
    exact = passed(*stacked(networks, shape, keep=torch.float64, compute=torch.float64), images, weights)
    network, slabs = stacked(networks, shape, compute=torch.bfloat16)
    found = passed(network, slabs, images.float(), weights.float())
    assert found["logits"].dtype == torch.bfloat16
    assert all(leaf.gradient.dtype == torch.float32 for slab in slabs for leaf in slab.leaves)
    assert all(tensor.dtype in (torch.float32, torch.int64) for slab in slabs for tensor in slab.buffers.values())
    # Eight bits of mantissa through eight layers, forward and backward: 0.04 at most, as for torch's own autocast.
    check_close(found, exact, tolerance=0.06)


def test_maps_too_large_to_be_squared_have_an_infinite_variance_as_alone(generator):
    shape = (3, 8, 8)
    networks, (images, weights) = networks_of(shape, generator), given_to(shape, BATCH, generator)
    networks[0].conv1.weight.data.mul_(1e24)  # the means, too, are too large for that
    network, slabs = stacked(networks, shape)
    found = passed(network, slabs, images, weights)
    theirs = alone(networks[0], images[0], weights[0])
    mine = of_member(found, slabs, 0)
    assert bool(theirs["bn1.running_var"].isinf().all())
    assert torch.equal(mine["bn1.running_var"], theirs["bn1.running_var"])
    assert bool(theirs["logits"].isfinite().all())
    for name in ("logits", "tested", "fc.weight", "conv1.weight", "bn1.weight", "bn1.bias"):
        torch.testing.assert_close(mine[name], theirs[name], rtol=1e-3, atol=1e-3 * float(theirs[name].abs().max()))


def test_every_member_is_computed_by_itself(generator):
    shape = (3, 8, 8)
    networks, images, weights = doubled(shape, generator)
    both = passed(*stacked(networks, shape, keep=torch.float64, compute=torch.float64), images, weights)
    images[0] *= torch.nan
    spoilt = passed(*stacked(networks, shape, keep=torch.float64, compute=torch.float64), images, weights)
    assert bool(spoilt["logits"][0].isnan().all())
    for name, value in both.items():
        place = 0 if name in ("logits", "tested") or name.endswith("steps") else 1
        assert torch.equal(spoilt[name].select(place, 1), value.select(place, 1)), name


def test_a_single_value_a_channel_is_refused_as_torch_does(generator):
    shape = (3, 4, 4)  # maps of one pixel in the end
    networks = networks_of(shape, generator)
    network, slabs = stacked(networks, shape)
    with pytest.raises(ValueError, match="expected more than one value a channel"):
        passed(network, slabs, *given_to(shape, 1, generator))
    with pytest.raises(ValueError, match="Expected more than 1 value per channel"):
        networks[0](torch.zeros(1, *shape))
    passed(network, slabs, *given_to(shape, 2, generator))
