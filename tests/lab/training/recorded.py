"""A CUDA graph as far as a CPU has one: operations are noted once and then done again, and no Python with them."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Recorded:
    """Stands in for `Graphed`: the first calls are real, the next is noted, and later ones repeat its operations.

    They read and write the tensors that the noted call read and wrote, whatever has become of the names for them.
    """

    def __init__(self, work, warmup=3):
        self.work, self.warmup, self.notes, self.replays = work, warmup, None, 0

    def __call__(self):
        if self.notes is not None:
            self.replays += 1
            self._replay()
        elif self.warmup > 0:
            self.warmup -= 1
            self.work()
        else:
            with _Notes() as notes:
                self.work()
            self.notes = notes.taken

    @torch.no_grad()
    def _replay(self):
        for operation, args, kwargs, made in self.notes:
            again = operation(*args, **kwargs)
            for old, new in zip(tree_leaves(made), tree_leaves(again), strict=True):
                if isinstance(old, torch.Tensor) and old.data_ptr() != new.data_ptr():
                    old.copy_(new)


class _Notes(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.taken = []

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        made = operation(*args, **(kwargs or {}))
        self.taken.append((operation, args, kwargs or {}, made))
        return made
