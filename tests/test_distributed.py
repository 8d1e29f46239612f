"""What ranks agree on: the same model, errors raised together, groups of their own."""

import pytest
import torch
import torch.distributed as dist
from torch import nn

import orthosparse
from contracts.ranks import on_two_ranks
from orthosparse import distributed


def stage(rank):
    """The halves of a pipeline, of unequal sizes."""
    sides = (32, 64) if rank == 0 else (64, 16)
    return nn.Sequential(nn.Linear(*sides), nn.Tanh())


def state_of(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


def pipeline(rank):
    model = stage(rank)
    before = state_of(model)
    with pytest.raises(ValueError, match=r"^model: expected the same one on every rank .*'0\.weight' is \(64, 32\)"):
        orthosparse.sparsify(model, 0.2)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
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
