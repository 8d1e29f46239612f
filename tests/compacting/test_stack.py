"""Compact models in a training stack: averages, autocast, distributed checkpoints."""

import copy

import pytest
import torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from compacting.models import batch_for, masked_net
from compacting.test_ranks import batches, mlp, optimizer_of, train
from contracts.ranks import on_two_ranks
from contracts.states import assert_same, whole_state_of
from orthosparse import compact, expand, masks_of


def compacted(seed=0):
    model = mlp()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1 + seed)
    compact(model)
    return model


@pytest.mark.stack("EMA", "compact")
def test_an_average_of_compact_models_is_that_of_their_values():
    model = compacted()
    masks = masks_of(model)
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.5), use_buffers=False)
    optimizer, seen = optimizer_of(model), []
    for data in batches(3):
        train(model, optimizer, [data])
        average.update_parameters(model)
        seen.append(model[0].values.detach().clone())
    expected = seen[0]
    for values in seen[1:]:
        expected = (expected + values) / 2
    torch.testing.assert_close(average.module[0].values, expected)
    expand(average.module)
    assert_same(masks, masks_of(average.module))


@pytest.mark.stack("AMP", "compact")
def test_compact_models_train_under_autocast_as_masked_ones_do():
    losses = []
    for model in (mlp().float(), compacted().float()):
        optimizer = optimizer_of(model)
        for x, y in batches(3):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = torch.nn.functional.cross_entropy(model(x.float()), y)
            loss.backward()
            optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[0] == pytest.approx(losses[1], rel=2e-2)  # bfloat16 has 8 bits


def broadcast(rank):
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
    from torch.distributed.fsdp import fully_shard

    expected = compacted(1).state_dict()
    for strict in (True, False):
        model = compacted(0)
        for layer in model[::2]:
            fully_shard(layer)
        fully_shard(model)
        how = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True, strict=strict)
        set_model_state_dict(model, copy.deepcopy(dict(expected)) if rank == 0 else {}, options=how)
        assert_same(whole_state_of(model), expected)


@pytest.mark.stack("DCP with broadcast", "compact")
def test_a_checkpoint_of_rank_0_is_broadcast_into_the_shards_of_compact_layers(tmp_path):
    on_two_ranks(broadcast, tmp_path)


def test_a_default_device_does_not_matter(generator):
    model = masked_net(generator).eval()  # without dropout
    x, _ = batch_for(model, generator)
    twin = copy.deepcopy(model)
    compact(twin)
    twin(x).sum().backward()
    with torch.device("meta"):
        compact(copy.deepcopy(model), x)  # measured
        compact(model)
        model(x).sum().backward()
    assert all(torch.equal(a.grad, b.grad) for a, b in zip(model.parameters(), twin.parameters(), strict=True))
