"""Checkpoints of masked models through torch.distributed.checkpoint, on two processes."""

import copy

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from contracts.ranks import on_two_ranks
from contracts.seeded import seeded
from contracts.states import assert_same, state_of, whole_state_of
from masking.models import Tied, coins, filled
from orthosparse import masking


def sparse(seed):
    model = filled(nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4)), seeded(seed))
    masking.attach(model, coins(model, ["0", "2"], seeded(seed + 100)))
    return model


def tied(seed):
    model = filled(Tied(), seeded(seed))
    masking.attach(model, coins(model, ["one"], seeded(seed + 100)))
    return model


def sharded(seed):
    from torch.distributed.fsdp import fully_shard

    model = sparse(seed)
    fully_shard(model[0])
    fully_shard(model)
    return model


def broadcast_into_shards(rank):
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, set_model_state_dict

    for strict in (True, False):
        for offload in (True, False):
            options = StateDictOptions(full_state_dict=True, cpu_offload=offload)
            full = get_model_state_dict(sharded(0), options=options)
            model = sharded(1)
            how = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True, strict=strict)
            result = set_model_state_dict(model, full if rank == 0 else {}, options=how)
            assert (result.missing_keys, result.unexpected_keys) == ([], [])
            assert_same(whole_state_of(model), sparse(0).state_dict())
    # A dense checkpoint: every rank keeps the masks that it has.
    dense = {key: value for key, value in sparse(2).state_dict().items() if not key.endswith("mask")}
    how = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    model = sharded(1)
    masks = masking.masks_of(model)
    set_model_state_dict(model, dict(dense) if rank == 0 else {}, options=how)
    for name, mask in masks.items():
        assert torch.equal(masking.masks_of(model)[name], mask)
        assert torch.equal(whole_state_of(model)[f"{name}.weight"], torch.where(mask, dense[f"{name}.weight"], 0))


@pytest.mark.stack("DCP with broadcast", "masked")
def test_a_checkpoint_of_rank_0_is_broadcast_into_the_shards_of_every_rank(tmp_path):
    on_two_ranks(broadcast_into_shards, tmp_path)


def wrapped_models(rank):
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, set_model_state_dict

    options = [
        None,
        StateDictOptions(strict=False),
        StateDictOptions(full_state_dict=True),
        StateDictOptions(full_state_dict=True, cpu_offload=False, strict=False),
        StateDictOptions(full_state_dict=True, broadcast_from_rank0=True),
    ]
    for make in (sparse, tied):
        for option in options:
            for wrap in (DistributedDataParallel, lambda model: torch.compile(DistributedDataParallel(model))):
                state = get_model_state_dict(wrap(make(0)), options=option)
                assert set(state) == set(make(0).state_dict())
                state = {key: value.clone() for key, value in state.items()}
                if option is not None and option.broadcast_from_rank0 and rank:
                    state = {}
                inner = make(1)
                set_model_state_dict(wrap(inner), state, options=option)
                assert_same(inner.state_dict(), make(0).state_dict())


@pytest.mark.filterwarnings("ignore:Please use DTensor instead:FutureWarning")
def test_a_wrapped_model_takes_its_own_checkpoint_whatever_the_options(tmp_path):
    on_two_ranks(wrapped_models, tmp_path)


def trained(model, optimizer, steps=2):
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(3, 6)).square().sum().backward()
        optimizer.step()


def optimizer_states(rank):
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, get_state_dict, set_state_dict

    for make in (lambda seed: DistributedDataParallel(sparse(seed)), sharded):
        model = make(0)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        trained(model, optimizer)
        states = copy.deepcopy(get_state_dict(model, optimizer))
        assert set(states[1]["state"]) == {"0.weight", "0.bias", "2.weight", "2.bias"}  # as of a dense model
        trained(model, optimizer)
        expected = copy.deepcopy(get_state_dict(model, optimizer))
        other = make(1)
        resumed = torch.optim.AdamW(other.parameters(), lr=0.5)
        set_state_dict(other, resumed, model_state_dict=states[0], optim_state_dict=states[1])
        trained(other, resumed)
        found = get_state_dict(other, resumed)
        torch.testing.assert_close(found[0], expected[0], rtol=0, atol=0)
        torch.testing.assert_close(found[1]["state"], expected[1]["state"], rtol=0, atol=0)
        assert get_optimizer_state_dict(other, resumed)["param_groups"][0]["lr"] == 0.1
    dist.barrier()


def test_a_run_resumes_from_distributed_checkpoints_of_model_and_optimizer(tmp_path):
    on_two_ranks(optimizer_states, tmp_path)


def files_of_shards(rank, folder):
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict

    dcp.save({"model": get_model_state_dict(sharded(0))}, checkpoint_id=f"{folder}/saved")
    model = sharded(1)
    state = {"model": get_model_state_dict(model)}
    dcp.load(state, checkpoint_id=f"{folder}/saved")
    set_model_state_dict(model, state["model"])
    assert_same(whole_state_of(model), sparse(0).state_dict())


def test_shards_go_through_files_with_their_masks(tmp_path):
    on_two_ranks(files_of_shards, tmp_path, str(tmp_path))


def tensor_parallel(rank):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh, x = init_device_mesh("cpu", (2,)), torch.randn(3, 6, generator=seeded(5))
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    for style in plan:
        model = sparse(0)
        before = state_of(model)
        with pytest.raises(RuntimeError, match="parallelize_module first, then sparsify"):
            parallelize_module(model, mesh, {style: plan[style]})
        assert_same(model.state_dict(), before)
    # The other order; and a checkpoint of one process.
    model = filled(nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4)), seeded(1))
    parallelize_module(model, mesh, plan)
    masking.load_sparse(model, sparse(0).state_dict())
    torch.testing.assert_close(model(x), sparse(0)(x))
    optimizer, alone = torch.optim.AdamW(model.parameters(), lr=0.1), sparse(0)
    trained(model, optimizer)
    trained(alone, torch.optim.AdamW(alone.parameters(), lr=0.1))
    torch.testing.assert_close(whole_state_of(model), dict(alone.state_dict()), check_device=False)


@pytest.mark.stack("TP", "masked")
def test_tensor_parallel_layers_are_masked_after_they_were_divided_and_not_divided_after_they_were_masked(tmp_path):
    on_two_ranks(tensor_parallel, tmp_path)
