"""Slabs of convolutions and normalisations against torch's own modules."""

import pytest
import torch
from torch import nn

from lab.training.stacked.stacked import CPU, networks_of
from orthosparse.lab.models.stages import Grid, Norms, Stage
from orthosparse.lab.training.stacked.assembly import residual_of
from orthosparse.lab.training.stacked.slab import NormSlab

LAYERS, MEMBERS, CHANNELS = 2, 3, 4
IMAGES = (3, 8, 8)


def normed(momentum=0.1):
    stage, norms = Stage(("conv1", "conv2"), 2, CHANNELS, Grid(3, 2, 1, 1)), Norms(("bn1", "bn2"), 1e-5, momentum)
    slab = NormSlab(stage, norms, MEMBERS, torch.float64, CPU)
    slab.var.fill_(1.0)
    return slab


def seen(slab, batch, generator):
    """Return maps ``[layers, members, batch, channels, height, width]`` whose statistics the slab notes, biased."""
    shape = (LAYERS, MEMBERS, batch, CHANNELS, 3, 2)
    maps = 3 + 2 * torch.randn(shape, generator=generator, dtype=torch.float64)
    slab.batch_mean.copy_(maps.mean((2, 4, 5)))
    slab.batch_var.copy_(maps.var((2, 4, 5), unbiased=False))
    slab.samples = batch * 3 * 2
    return maps


@pytest.mark.parametrize("momentum", [0.1, 0.7, 1.0])
def test_running_statistics_follow_as_those_of_torch_do(momentum, generator):
    slab = normed(momentum)
    norms = [[nn.BatchNorm2d(CHANNELS, momentum=momentum).double() for _ in range(MEMBERS)] for _ in range(LAYERS)]
    for batch in (6, 6, 2):  # the last one of an epoch is shorter
        maps = seen(slab, batch, generator)
        slab.update_statistics(torch.ones(MEMBERS, dtype=torch.bool))
        for layer, row in enumerate(norms):
            for member, norm in enumerate(row):
                norm(maps[layer, member])
                torch.testing.assert_close(slab.mean[layer, member], norm.running_mean, rtol=1e-13, atol=1e-13)
                torch.testing.assert_close(slab.var[layer, member], norm.running_var, rtol=1e-13, atol=1e-13)
                assert slab.steps[member] == norm.num_batches_tracked


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, 7.0])
def test_a_member_that_has_stopped_keeps_the_bits_of_its_statistics(bad, generator):
    slab = normed()
    seen(slab, 6, generator)
    slab.update_statistics(torch.ones(MEMBERS, dtype=torch.bool))
    before = {name: value for name, value in slab.state_of(1) if "conv" not in name}
    others = slab.mean[:, [0, 2]].clone()
    seen(slab, 6, generator)
    slab.batch_mean[:, 1], slab.batch_var[:, 1] = bad, bad
    slab.update_statistics(torch.tensor([True, False, True]))
    after = dict(slab.state_of(1))
    assert all(torch.equal(after[name], value) for name, value in before.items())
    assert slab.steps.tolist() == [2, 1, 2]
    assert bool((slab.mean[:, [0, 2]] != others).all())
    assert all(bool(tensor.isfinite().all()) for tensor in slab.buffers.values())


def test_statistics_that_were_infinite_once_stay_so_as_in_torch(generator):
    slab, norm = normed(), nn.BatchNorm2d(CHANNELS).double()
    for running in (slab.mean[0, 0], slab.var[0, 0], norm.running_mean, norm.running_var):
        running[2] = torch.inf
    norm(seen(slab, 6, generator)[0, 0])
    slab.update_statistics(torch.ones(MEMBERS, dtype=torch.bool))
    assert norm.running_mean[2] == norm.running_var[2] == torch.inf
    torch.testing.assert_close(slab.mean[0, 0], norm.running_mean, rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(slab.var[0, 0], norm.running_var, rtol=1e-13, atol=1e-13)


def test_statistics_stay_where_a_captured_graph_has_seen_them(generator):
    slab = normed()
    places = [tensor.data_ptr() for tensor in slab.buffers.values()]
    seen(slab, 6, generator)
    slab.update_statistics(torch.ones(MEMBERS, dtype=torch.bool))
    assert [tensor.data_ptr() for tensor in slab.buffers.values()] == places


def state_of(network, place, generator):
    """Return the state dict of a network that has been trained a while, with masks on some of its layers."""
    images = torch.randn(4, *IMAGES, generator=generator)
    for _ in range(place + 1):
        network(images)
    state = network.state_dict()
    masked = [name for name, value in state.items() if name.endswith("weight") and value.dim() > 1][place:]
    state |= {f"{name}_mask": torch.rand(state[name].shape, generator=generator) < 0.5 for name in masked}
    return state


def test_what_a_slab_was_filled_with_it_gives_back(generator):
    networks = networks_of(IMAGES, generator)
    _, slabs = residual_of(networks[0], IMAGES, len(networks), (torch.float32, torch.float32), CPU)
    states = [state_of(network, place, generator) for place, network in enumerate(networks)]
    for member, state in enumerate(states):
        for slab in slabs:
            slab.fill(member, state)
    for member, state in enumerate(states):
        found = {name: tensor for slab in slabs for name, tensor in slab.state_of(member)}
        assert found.keys() == state.keys()
        for name, value in state.items():
            assert (found[name].dtype, found[name].shape) == (value.dtype, value.shape)
            assert torch.equal(found[name], value)
            found[name].zero_()  # a copy
    assert torch.equal(dict(slabs[0].state_of(0))["conv1.weight"], states[0]["conv1.weight"])


def test_scales_and_shifts_are_trained_and_statistics_are_not():
    slab = normed()
    assert list(slab.named) == ["weight", "scale", "shift"]
    assert slab.leaves == (slab.weight, slab.scale, slab.shift)
    assert [leaf.off is not None for leaf in slab.leaves] == [True, False, False]
    assert {name: tensor.shape for name, tensor in slab.buffers.items()} == {
        "mean": (LAYERS, MEMBERS, CHANNELS),
        "var": (LAYERS, MEMBERS, CHANNELS),
        "steps": (MEMBERS,),
    }
