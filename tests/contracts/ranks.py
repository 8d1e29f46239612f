"""Two processes that talk over gloo, for the tests that need them."""

import gc
import multiprocessing
import os
import sys
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

# On Linux, ranks are copies of a process that has imported these and done nothing else: to import them takes longer
# than what most ranks do.
_METHOD = "forkserver" if sys.platform == "linux" else "spawn"
_IMPORTED = (
    "pytest",
    "torch.distributed.checkpoint.state_dict",
    "torch.distributed.fsdp",
    "torch.distributed.tensor.parallel",
)


def on_two_ranks(work, folder, *args):
    """Run ``work(rank, *args)`` in two processes of one group and raise what one of them raises."""
    multiprocessing.set_forkserver_preload(_IMPORTED)
    mp.start_processes(_process, args=(work, str(folder), args), nprocs=2, start_method=_METHOD)
    assert len([*folder.glob(f"{work.__name__}.*.done")]) == 2


def same_on_all(value):
    """Whether both ranks have the same tensor."""
    values = [torch.empty_like(value) for _ in range(2)]
    dist.all_gather(values, value.contiguous())
    return torch.equal(*values)


def _process(rank, work, folder, args):
    torch.set_num_threads(1)
    with grouped(rank, f"file://{folder}/{work.__name__}.store"):
        work(rank, *args)
    Path(folder, f"{work.__name__}.{rank}.done").touch(exist_ok=False)
    leave()


@contextmanager
def grouped(rank, store):
    """Form a process group for the block; at its end both ranks have done all they asked of each other."""
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=2, timeout=timedelta(seconds=120))
    yield
    gc.collect()  # DDP's reducers hold the group, and sit in cycles
    dist.barrier()
    dist.destroy_process_group()


def leave():
    """End the process now.

    Gloo's threads may still drop a tensor while the interpreter is being taken down, and the attempt to take its lock
    then ends the process by SIGABRT (seen once in some hundred runs).
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
