"""Two processes that talk over gloo, for the tests that need them."""

import gc
import os
import sys
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def on_two_ranks(work, folder, *args):
    """Run ``work(rank, *args)`` in two processes of one group and raise what one of them raises."""
    mp.spawn(_process, args=(work, str(folder), args), nprocs=2)
    assert len([*folder.glob(f"{work.__name__}.*.done")]) == 2


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
