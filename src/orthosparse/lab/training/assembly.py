"""Assembles a run: data, network, masks and the batches that score them, optimizer; each from its own generator."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import orthosparse
from orthosparse import load_sparse
from orthosparse.lab.data import Dataset, Loader, Split, load
from orthosparse.lab.models import build, dense_init
from orthosparse.lab.seeds import Generators, generators
from orthosparse.lab.training.run import DYNAMICS, Run, with_paper_options
from orthosparse.lab.training.single import Single
from orthosparse.lab.training.state import State

if TYPE_CHECKING:
    from lightning_fabric import Fabric


_EVAL_BATCH = 500  # samples at a time when evaluating; it changes no result


def assemble(
    run: Run,
    seed: int,
    fabric: "Fabric",
    *,
    root: Path | str | None = None,
    data: Dataset | None = None,
    channels_last: bool = False,
    saved: dict[str, Any] | None = None,
) -> State:
    """Return the run of a description and a seed on the devices of `fabric`, before its first step.

    Args:
        data: the data set, if it is loaded already.
        channels_last: whether images and kernels are in this memory format.
        saved: the network's state dict of a checkpoint; its weights and masks are used instead of a new start.

    Raises:
        ValueError: data and model do not fit, or a bad setting.
        FileNotFoundError: the data is not below `root`.
    """
    rng = generators(seed)
    if data is None:
        data = load(run.data, root, device=fabric.device, validation=run.validation)
    if saved is None:
        network = started(run, seed, data, fabric.device)
    else:
        dtype = torch.float64 if run.recipe.precision == "fp64" else torch.float32
        network = _built(run, data, rng).to(fabric.device, dtype)
        load_sparse(network, saved)
    loader = shuffled(run, data, rng, fabric.device, rank=fabric.global_rank, world=fabric.world_size)
    parameters = sum(p.numel() for p in network.parameters())
    if fabric.world_size > 1 and fabric.device.type == "cuda":
        # Batch normalisation sees the whole batch where GPUs share it; torch has no such layer for CPUs.
        network = nn.SyncBatchNorm.convert_sync_batchnorm(network)
    layout = torch.channels_last if channels_last else torch.contiguous_format
    single = Single(network.to(memory_format=layout), fabric, run.recipe, layout, parameters)  # type: ignore[call-overload]
    single.rewirer = _rewirer(run, single, len(loader), rng)
    return State(
        fabric=fabric,
        recipe=run.recipe,
        networks=single,
        loader=loader,
        test=evaluated(data.test, fabric),
        validation=None if data.validation is None else evaluated(data.validation, fabric),
        classes=data.classes,
        seed=rng.dropout.initial_seed(),
    )


def started(
    run: Run,
    seed: int,
    data: Dataset,
    device: torch.device,
    *,
    descent: torch.device | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> nn.Module:
    """Return the network of a description and a seed before its first step, with its masks attached.

    Args:
        descent: the device of AI's descent; by default `device`.
        progress: see `orthosparse.sparsify`.
    """
    rng = generators(seed)
    network, recipe = _built(run, data, rng), run.recipe
    if recipe.dense_init != "default":
        dense_init(network, recipe.dense_init, gain=recipe.gain, bias_std=recipe.bias_std, generator=rng.init)
    network = network.to(device)
    if run.density < 1:
        _sparsify(network, run, data, rng, device, descent=descent or device, progress=progress or False)
    return network


def _built(run: Run, data: Dataset, rng: Generators) -> nn.Module:
    return build(
        run.model,
        classes=data.classes,
        in_shape=data.in_shape,
        activation=run.activation,
        generator=rng.init,
        **run.model_options,
    )


def shuffled(
    run: Run, data: Dataset, rng: Generators, device: torch.device, *, rank: int = 0, world: int = 1
) -> Loader:
    """Return the loader of the training samples."""
    return Loader(
        data.train,
        batch=run.recipe.batch,
        recipe=data.augmentation,
        seed=rng.data.initial_seed(),
        augment_seed=rng.augment.initial_seed(),
        device=device,
        rank=rank,
        world=world,
    )


def evaluated(split: Split, fabric: "Fabric") -> Loader:
    """Return a loader that neither shuffles nor augments."""
    world = fabric.world_size
    batch = max(_EVAL_BATCH // world, 1) * world
    return Loader(split, batch=batch, train=False, device=fabric.device, rank=fabric.global_rank, world=world)


def _sparsify(
    network: nn.Module,
    run: Run,
    data: Dataset,
    rng: Generators,
    device: torch.device,
    *,
    descent: torch.device,
    progress: Any,
) -> None:
    # Every rank scores whole batches, so that the masks do not depend on the number of ranks.
    whole = shuffled(run, data, rng, device)
    options = with_paper_options(run.distribution, run.scheme, run.options)
    if run.scheme == "ai":
        options.setdefault("device", descent)  # its descent is long: thousands of products for every layer
    orthosparse.sparsify(
        network,
        run.density,
        distribution=run.distribution,
        scheme=run.scheme,
        **scored_on(run, whole),
        exclude=run.exclude,
        gain=run.recipe.gain,
        bias_std=run.recipe.bias_std,
        floor=run.floor,
        generator=rng.mask,
        progress=progress,
        **options,
    )


def _rewirer(run: Run, single: Single, steps: int, rng: Generators) -> "orthosparse.Rewirer | None":
    if run.dynamic is None:
        return None
    method = dict(DYNAMICS[run.dynamic])
    if run.until is not None:
        method["until"] = run.until
    return orthosparse.Rewirer(
        single.network,
        single.optimizer,
        every=run.every,
        fraction=run.fraction,
        steps=run.recipe.epochs * steps,
        generator=rng.rewire,
        **method,
    )


# Networks without interaction between samples, and so narrow that a GPU takes hardly longer for 2048 samples than for
# 128; the second derivatives of a thousand layers need too much memory for more.
_NARROW = ("mlp", "mlp1000")
_PIECE = {"cuda": 16, "cpu": 8}


def scored_on(run: Run, loader: Loader) -> dict[str, Any]:
    """Return the arguments ``batch`` and ``loss`` of `sparsify`: the first `score_batches` batches of the loader.

    GraSP adds up the gradients of the batches' mean losses and, in a second pass, their products with the Hessians:
    both are linear in the losses. So several batches may be one whose loss is the sum of their means.
    """
    batches = islice(loader.epoch(0), run.score_batches)
    if run.distribution != "grasp" or run.score_batches == 1 or run.model not in _NARROW:
        return {"batch": list(batches), "loss": None}
    many = _PIECE.get(loader.device.type, 1)
    return {"batch": list(_pieces(batches, loader.batch, many)), "loss": partial(_sum_of_means, size=loader.batch)}


def _pieces(batches: Iterator[tuple[Tensor, Tensor]], size: int, many: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield whole batches joined, `many` at a time, and a short one by itself, whose mean has another divisor."""
    while piece := list(islice(batches, many)):
        whole = [batch for batch in piece if len(batch[1]) == size]
        if whole:
            yield torch.cat([images for images, _ in whole]), torch.cat([labels for _, labels in whole])
        yield from (batch for batch in piece if len(batch[1]) < size)


def _sum_of_means(outputs: Tensor, labels: Tensor, *, size: int) -> Tensor:
    """Return the sum of the mean losses of batches of `size`, or the mean loss of a shorter one."""
    return functional.cross_entropy(outputs, labels, reduction="sum") / min(size, len(labels))
