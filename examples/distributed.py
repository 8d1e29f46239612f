"""DDP, then FSDP2, or one of them: torchrun --nproc-per-node 2 examples/distributed.py [ddp] [fsdp]."""

import gc
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import orthosparse


def main(how: str, steps: int = 20) -> None:
    rank = dist.get_rank()
    device = torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")
    model = nn.Sequential(nn.Linear(64, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh(), nn.Linear(128, 10)).to(device)
    # The generator is seeded differently on every rank, on purpose: all of them end with rank 0's masks and weights.
    report = orthosparse.sparsify(model, density=0.2, generator=torch.Generator().manual_seed(rank))
    if how == "fsdp":
        fully_shard(model)  # before or after sparsify: the weights are those of one device
    else:
        model = DistributedDataParallel(model)

    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    rewirer = orthosparse.Rewirer(model, optimizer, every=5, steps=steps)  # every rank makes the same moves
    data = torch.Generator().manual_seed(100 + rank)  # each rank its own samples
    for _ in range(steps):
        x, y = torch.randn(32, 64, generator=data).to(device), torch.randint(10, (32,), generator=data).to(device)
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        rewirer.step()

    mine = torch.cat([mask.flatten() for mask in orthosparse.masks_of(model).values()]).to(torch.uint8)
    theirs = mine.clone()
    dist.broadcast(theirs, src=0)
    assert torch.equal(mine, theirs), "ranks disagree"
    if rank == 0:
        print(f"{how}: {int(mine.sum())} of {report.numel} weights on {dist.get_world_size()} ranks, loss {loss:.3f}")


if __name__ == "__main__":
    gpus = torch.cuda.is_available()
    dist.init_process_group("nccl" if gpus else "gloo")
    if gpus:
        torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
    for how in sys.argv[1:] or ["ddp", "fsdp"]:
        main(how)
    gc.collect()  # models and groups refer to each other; a group that outlives its end aborts the process
    dist.barrier()
    dist.destroy_process_group()
