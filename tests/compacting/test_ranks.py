"""Compact models on two processes."""

import copy

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

from compacting.models import masked_net
from contracts.ranks import on_two_ranks
from contracts.states import assert_same, state_of
from orthosparse import BlockLinear, Rewirer, SparseLinear, bake, compact, expand, load_sparse, masks_of
from orthosparse.compacting import exchanged


def mlp(seed=0):
    generator = torch.Generator().manual_seed(seed)
    model = nn.Sequential(nn.Linear(32, 48), nn.Tanh(), nn.Linear(48, 32), nn.Tanh(), nn.Linear(32, 5))
    return masked_net(generator, block=16, model=model)


def batches(steps):
    generator = torch.Generator().manual_seed(1)
    return [
        (torch.randn(8, 32, generator=generator, dtype=torch.float64), torch.randint(5, (8,), generator=generator))
        for _ in range(steps)
    ]


def train(model, optimizer, data, rank=None, rewirer=None):
    for x, y in data:
        mine = slice(None) if rank is None else slice(4 * rank, 4 * rank + 4)
        optimizer.zero_grad()
        functional.cross_entropy(model(x[mine]), y[mine]).backward()
        optimizer.step()
        if rewirer is not None:
            rewirer.step()


def optimizer_of(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)


def expected_weights(steps, rewired=False):
    model = mlp()
    compact(model)
    optimizer = optimizer_of(model)
    rewirer = Rewirer(model, optimizer, every=2, steps=20) if rewired else None
    train(model, optimizer, batches(steps), rewirer=rewirer)
    expand(model)
    return [layer.weight.detach() for layer in model[::2]]


def rank_0_measures(rank):
    model = mlp()
    own = exchanged.ratios_of
    exchanged.ratios_of = lambda *args: (
        dict.fromkeys(own(*args), 2.0) if dist.get_rank() == 0 else pytest.fail("measured")
    )
    try:
        table = compact(model, batches(1)[0][0])
    finally:
        exchanged.ratios_of = own
    assert table.exchanged == {"0": "block:16", "2": "block:16", "4": "entries"}
    assert [row.ratio for row in table.rows] == [2.0] * 3


def ddp_trains_active_weights(rank):
    model = mlp()
    compact(model)
    wrapped = nn.parallel.DistributedDataParallel(model)
    with pytest.raises(ValueError, match="DistributedDataParallel"):
        compact(wrapped)
    optimizer = optimizer_of(model)
    rewirer = Rewirer(wrapped, optimizer, every=2, steps=20)
    train(wrapped, optimizer, batches(5), rank, rewirer)
    assert rewirer.updates == 2
    expand(model)
    for layer, weight in zip(model[::2], expected_weights(5, rewired=True), strict=True):
        torch.testing.assert_close(layer.weight, weight, rtol=1e-9, atol=1e-9)


def fsdp_shards_active_weights(rank):
    from torch.distributed.fsdp import fully_shard

    model = mlp()
    masks = masks_of(model)
    compact(model)
    for layer in model[::2]:
        fully_shard(layer)
    fully_shard(model)
    assert isinstance(model[0], BlockLinear)
    assert isinstance(model[4], SparseLinear)
    for call in (compact, expand):
        with pytest.raises(ValueError, match="fully_shard"):
            call(model)
    train(model, optimizer_of(model), batches(5), rank)
    for layer, weight in zip(model[::2], expected_weights(5), strict=True):
        values = layer.values.full_tensor()
        torch.testing.assert_close(layer.scatter(values), weight, rtol=1e-9, atol=1e-9)
    assert_same(masks, masks_of(model))


def tensor_parallelism_keeps_layers_masked(rank):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh, plan = init_device_mesh("cpu", (2,)), {"0": ColwiseParallel(), "2": RowwiseParallel()}
    model = mlp()
    compact(model)
    before = state_of(model)
    with pytest.raises(NotImplementedError, match=r"only support nn\.Linear"):  # torch's own answer
        parallelize_module(model, mesh, plan)
    assert_same(before, model.state_dict())
    x = batches(1)[0][0]
    torch.testing.assert_close(model(x), mlp()(x))
    # The way: divided first, masked then, and left so.
    model = parallelize_module(nn.Sequential(*(copy.deepcopy(layer) for layer in baked())), mesh, plan)
    load_sparse(model, mlp().state_dict())
    for call in (compact, expand):
        with pytest.raises(ValueError, match=r"parallelize_module, .* layers stay masked"):
            call(model)
    torch.testing.assert_close(model(x), mlp()(x))


def baked():
    model = mlp()
    bake(model)
    return model


@pytest.mark.stack("TP", "compact", "refused")
def test_tensor_parallelism_and_compact_layers_refuse_each_other(tmp_path):
    on_two_ranks(tensor_parallelism_keeps_layers_masked, tmp_path)


@pytest.mark.parametrize("work", [rank_0_measures, ddp_trains_active_weights, fsdp_shards_active_weights])
@pytest.mark.stack("DDP", "compact")
@pytest.mark.stack("FSDP2", "compact")
def test_on_two_ranks(work, tmp_path):
    on_two_ranks(work, tmp_path)
