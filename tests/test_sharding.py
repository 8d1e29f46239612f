"""Sharded parameters read, written and masked as if they were whole; a mesh of one process stands for any."""

import pytest
import torch
import torch.distributed as dist
from torch import nn

from orthosparse import sharding


@pytest.fixture
def mesh():
    """A mesh of one process: every tensor is a DTensor, and the one shard is the whole."""
    from torch.distributed.device_mesh import init_device_mesh

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


def sharded(whole, mesh):
    from torch.distributed.tensor import Shard, distribute_tensor

    return distribute_tensor(whole.clone(), mesh, [Shard(0)])


def test_plain_tensors_are_their_own_whole(generator):
    whole = torch.randn(3, 4, generator=generator)
    assert not sharding.is_sharded(whole)
    assert sharding.shard_like(whole, whole) is whole
    assert torch.equal(sharding.full_tensor(whole), whole)
    assert sharding.compute_device(whole) == torch.device("cpu")


def test_writing_and_masking_a_parameter_keeps_its_identity_and_its_graph(generator):
    parameter = nn.Parameter(torch.randn(3, 4, generator=generator))
    loss = parameter.square().sum()
    mask = torch.rand(3, 4, generator=generator) < 0.5
    sharding.zero_off_(parameter, torch.ones_like(mask))
    loss.backward()  # nothing changed, so nothing complains
    sharding.write_(parameter, torch.ones(3, 4, dtype=torch.float64))
    sharding.zero_off_(parameter, mask)
    assert torch.equal(parameter, mask.float())


def test_sharded_tensors_are_read_written_and_masked_as_the_whole(mesh, generator):
    whole = torch.randn(3, 4, generator=generator)
    mask = torch.rand(3, 4, generator=generator) < 0.5
    parameter = nn.Parameter(sharded(whole, mesh))
    assert sharding.is_sharded(parameter)
    assert torch.equal(sharding.full_tensor(parameter), whole)
    assert sharding.compute_device(parameter) == torch.device("cpu")
    sharding.zero_off_(parameter, mask)
    assert torch.equal(sharding.full_tensor(parameter), torch.where(mask, whole, 0))
    sharding.write_(parameter, 2 * whole.double())
    assert torch.equal(sharding.full_tensor(parameter), 2 * whole)
    laid = sharding.shard_like(mask, parameter)
    assert torch.equal(laid.full_tensor(), mask)
    assert sharding.shard_like(laid, parameter) is laid


def test_broadcast_leaves_the_first_process_as_it_is(mesh, generator):
    mask, weight = torch.rand(5, generator=generator) < 0.5, nn.Parameter(torch.randn(5, generator=generator))
    before = mask.clone(), weight.detach().clone()
    sharding.broadcast_([mask, weight])
    assert torch.equal(mask, before[0])
    assert torch.equal(weight, before[1])


def test_fsdp_gathers_into_the_place_that_was_handed_over(mesh):
    from torch.distributed.fsdp import fully_shard

    model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2))
    other = nn.Module()
    fully_shard(model, mesh=mesh)
    place, parameter = (model[0], "weight"), model[0].weight
    assert not sharding.is_managed_elsewhere(model, place, parameter)
    assert sharding.is_managed_elsewhere(model[0], place, parameter)
    other.register_parameter("moved", parameter)
    sharding.move_fsdp_parameter(model, place, (other, "moved"))
    assert sharding.is_managed_elsewhere(model, place, parameter)
    model.unshard()
    assert sharding.is_sharded(model[0].weight)
    assert not sharding.is_sharded(other.moved)
    sharding.reshard(model)
    assert other.moved is parameter
