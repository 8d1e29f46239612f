"""What a distribution looks at: training batches, put together to larger ones where that changes nothing."""

from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from orthosparse.lab.data import Loader
from orthosparse.lab.training.run import Run

# Networks whose layers see no two samples, and so narrow that a GPU takes hardly longer for 2048 samples than for 128;
# the memory of a thousand layers, twice differentiated, speaks against more.
_NARROW = ("mlp", "mlp1000")
_PIECE = {"cuda": 16, "cpu": 8}


def scored_on(run: Run, loader: Loader) -> dict[str, Any]:
    """Return the arguments ``batch`` and ``loss`` of `sparsify`: the first `score_batches` batches of the loader.

    GraSP adds up the gradients of the batches' mean losses and, in a second pass, their products with the Hessians:
    both are linear in the losses. So many batches may come as one whose loss is the sum of their means.
    """
    batches = islice(loader.epoch(0), run.score_batches)
    if run.distribution != "grasp" or run.score_batches == 1 or run.model not in _NARROW:
        return {"batch": list(batches), "loss": None}
    many = _PIECE.get(loader.device.type, 1)
    return {"batch": list(_pieces(batches, loader.batch, many)), "loss": partial(_sum_of_means, size=loader.batch)}


def _pieces(batches: Iterator[tuple[Tensor, Tensor]], size: int, many: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield whole batches so many at a time, and a short one by itself: its mean has another divisor."""
    while piece := list(islice(batches, many)):
        whole = [batch for batch in piece if len(batch[1]) == size]
        if whole:
            yield torch.cat([images for images, _ in whole]), torch.cat([labels for _, labels in whole])
        yield from (batch for batch in piece if len(batch[1]) < size)


def _sum_of_means(outputs: Tensor, labels: Tensor, *, size: int) -> Tensor:
    """Return the sum of the mean losses of batches of `size`, or the mean loss of a shorter one."""
    return functional.cross_entropy(outputs, labels, reduction="sum") / min(size, len(labels))
