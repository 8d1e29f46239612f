"""What ranks agree on, and sharded parameters read, written and masked as if they were whole."""

import pytest
import torch
import torch.distributed as dist
from torch import nn

import orthosparse
from contracts.ranks import on_two_ranks
from contracts.states import assert_same, state_of
from orthosparse import distributed


def stage(rank):
    """The halves of a pipeline, of unequal sizes."""
    features = (32, 64) if rank == 0 else (64, 16)
    return nn.Sequential(nn.Linear(*features), nn.Tanh())


def pipeline(rank):
    model = stage(rank)
    before = state_of(model)
    with pytest.raises(ValueError, match=r"^model: expected the same one on every rank .*'0\.weight' is \(64, 32\)"):
        orthosparse.sparsify(model, 0.2)
    assert_same(before, model.state_dict())
    assert not any("mask" in name for name in model.state_dict())
    # A stage without matrices, a wrong argument, unlike data on one rank: all of them raise.
    with pytest.raises((ValueError, RuntimeError), match="expected at least one layer to sparsify"):
        orthosparse.sparsify(nn.LayerNorm(4) if rank else stage(0), 0.2)
    with pytest.raises((TypeError, RuntimeError), match="density: expected a number"):
        orthosparse.sparsify(stage(0), "x" if rank else 0.2)
    bad = (torch.full((4, 32), torch.nan if rank else 1.0), torch.zeros(4, dtype=torch.long))
    with pytest.raises((ValueError, RuntimeError), match="finite"):
        orthosparse.sparsify(stage(0), 0.2, distribution="snip", batch=bad)
    with pytest.raises(ValueError, match=r"'0\.weight' is .*float32 on rank 0 and .*float64 on rank 1"):
        orthosparse.sparsify(stage(0).to(torch.float64 if rank else torch.float32), 0.2)
    # Each stage with a group of its own.
    groups = [dist.new_group([one]) for one in range(2)]
    report = orthosparse.sparsify(model, 0.2, group=groups[rank], generator=torch.Generator().manual_seed(rank))
    assert report.rows[0].orthogonality < 1e-5
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rewirer = orthosparse.Rewirer(model, optimizer, grow="random", every=1, steps=10, group=groups[rank])
    for _ in range(1 + rank):  # the stages need not keep pace
        model(torch.ones(2, model[0].in_features)).sum().backward()
        optimizer.step()
        rewirer.step()
    with pytest.raises(TypeError, match="group: expected a process group that this rank belongs to"):
        orthosparse.sparsify(stage(rank), 0.2, group=groups[1 - rank])
    # A group of both, under which ranks seeded apart end with one model.
    both = dist.new_group([0, 1])
    model = stage(0)
    orthosparse.sparsify(model, 0.2, group=both, generator=torch.Generator().manual_seed(rank))
    gathered = [torch.empty_like(model[0].weight) for _ in range(2)]
    dist.all_gather(gathered, model[0].weight.detach())
    assert torch.equal(*gathered)


def test_stages_of_a_pipeline_are_refused_together_and_sparsified_apart(tmp_path):
    on_two_ranks(pipeline, tmp_path)


@pytest.mark.parametrize("group", ["all", 0, [0, 1]])
def test_what_is_no_group_is_named(group):
    model = stage(0)
    with pytest.raises(TypeError, match=r"^group: expected a process group"):
        orthosparse.sparsify(model, 0.2, group=group)
    with pytest.raises(TypeError, match=r"^group: expected a process group"):
        orthosparse.Rewirer(model, torch.optim.SGD(model.parameters()), steps=3, group=group)


def test_alone_there_is_nothing_to_agree_on():
    masks, mean = {"0": torch.eye(2, dtype=torch.bool)}, torch.ones(2)
    assert distributed.broadcast_seed(7) == 7
    assert distributed.broadcast_masks(masks) is masks
    assert distributed.mean_over_ranks(mean) is mean
    distributed.check_same_model(stage(0), {})
    with pytest.raises(KeyError), distributed.raised_on_every_rank():
        raise KeyError


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
    assert not distributed.is_sharded(whole)
    assert distributed.shard_like(whole, whole) is whole
    assert torch.equal(distributed.full_tensor(whole), whole)
    assert distributed.compute_device(whole) == torch.device("cpu")


def test_writing_and_masking_a_parameter_keeps_its_identity_and_its_graph(generator):
    parameter = nn.Parameter(torch.randn(3, 4, generator=generator))
    loss = parameter.square().sum()
    mask = torch.rand(3, 4, generator=generator) < 0.5
    distributed.zero_off_(parameter, torch.ones_like(mask))
    loss.backward()  # nothing changed, so nothing complains
    distributed.write_(parameter, torch.ones(3, 4, dtype=torch.float64))
    distributed.zero_off_(parameter, mask)
    assert torch.equal(parameter, mask.float())


def test_sharded_tensors_are_read_written_and_masked_as_the_whole(mesh, generator):
    whole = torch.randn(3, 4, generator=generator)
    mask = torch.rand(3, 4, generator=generator) < 0.5
    parameter = nn.Parameter(sharded(whole, mesh))
    assert distributed.is_sharded(parameter)
    assert torch.equal(distributed.full_tensor(parameter), whole)
    assert distributed.compute_device(parameter) == torch.device("cpu")
    distributed.zero_off_(parameter, mask)
    assert torch.equal(distributed.full_tensor(parameter), torch.where(mask, whole, 0))
    distributed.write_(parameter, 2 * whole.double())
    assert torch.equal(distributed.full_tensor(parameter), 2 * whole)
    laid = distributed.shard_like(mask, parameter)
    assert torch.equal(laid.full_tensor(), mask)
    assert distributed.shard_like(laid, parameter) is laid


def test_broadcast_leaves_the_first_process_as_it_is(mesh, generator):
    mask, weight = torch.rand(5, generator=generator) < 0.5, nn.Parameter(torch.randn(5, generator=generator))
    before = mask.clone(), weight.detach().clone()
    distributed.broadcast_([mask, weight])
    assert torch.equal(mask, before[0])
    assert torch.equal(weight, before[1])


def test_fsdp_gathers_into_the_place_that_was_handed_over(mesh):
    from torch.distributed.fsdp import fully_shard

    model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2))
    other = nn.Module()
    fully_shard(model, mesh=mesh)
    owner, parameter = (model[0], "weight"), model[0].weight
    assert not distributed.is_managed_elsewhere(model, owner, parameter)
    assert distributed.is_managed_elsewhere(model[0], owner, parameter)
    other.register_parameter("moved", parameter)
    distributed.move_fsdp_parameter(model, owner, (other, "moved"))
    assert distributed.is_managed_elsewhere(model, owner, parameter)
    model.unshard()
    assert distributed.is_sharded(model[0].weight)
    assert not distributed.is_sharded(other.moved)
    distributed.reshard(model)
    assert other.moved is parameter
