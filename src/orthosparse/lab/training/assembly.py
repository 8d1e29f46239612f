"""Puts a run together: data, network, masks, optimizer, each from its own generator."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import nn

import orthosparse
from orthosparse import Rewirer, load_sparse
from orthosparse.lab.data import Dataset, Loader, Split, load
from orthosparse.lab.models import build, dense_init
from orthosparse.lab.paper_options import resolved
from orthosparse.lab.seeds import Generators, generators
from orthosparse.lab.training.optimizers import make_optimizer
from orthosparse.lab.training.run import DYNAMICS, Run
from orthosparse.lab.training.scoring import scored_on
from orthosparse.lab.training.state import State

_EVAL_BATCH = 500  # samples at a time when evaluating; it changes no result


@dataclass(frozen=True)
class Assembled:
    """A run that is ready to start.

    Attributes:
        test: the loader of the test split.
        parameters: how many the network has, masked ones included.
    """

    state: State
    test: Loader
    parameters: int


def assemble(
    config: Run,
    seed: int,
    fabric: Fabric,
    *,
    root: Path | str | None = None,
    data: Dataset | None = None,
    channels_last: bool = False,
    saved: dict[str, Any] | None = None,
) -> Assembled:
    """Return the run of a configuration and a seed on the devices of `fabric`.

    Args:
        data: the set, where it is read already.
        saved: the model's state dict of a checkpoint: its masks are put on instead of being made again.

    Raises:
        ValueError: data and model do not fit, or a bad setting.
        FileNotFoundError: the data is not below `root`.
    """
    rng = generators(seed)
    if data is None:
        data = load(config.data, root, device=fabric.device, validation=config.validation)
    if saved is None:
        network = started(config, seed, data, fabric.device)
    else:
        network = _dense(config, data, rng).to(fabric.device)
        load_sparse(network, saved)
    loader = shuffled(config, data, rng, fabric.device, rank=fabric.global_rank, world=fabric.world_size)
    parameters = sum(p.numel() for p in network.parameters())
    network = _for_many_ranks(network, fabric)
    layout = torch.channels_last if channels_last else torch.contiguous_format
    network = network.to(memory_format=layout)  # type: ignore[call-overload]
    model = fabric.setup_module(network)
    optimizer = make_optimizer(
        config.recipe, network.parameters(), sharded=any(hasattr(p, "device_mesh") for p in network.parameters())
    )
    state = State(
        fabric=fabric,
        recipe=config.recipe,
        model=model,
        network=network,
        optimizer=optimizer,
        loader=loader,
        classes=data.classes,
        seed=rng.dropout.initial_seed(),
        validation=_still(data.validation, fabric) if data.validation is not None else None,
        rewirer=_rewirer(config, network, optimizer, len(loader), rng),
        layout=layout,
    )
    return Assembled(state, _still(data.test, fabric), parameters)


def started(
    config: Run, seed: int, data: Dataset, device: torch.device, *, descent: torch.device | None = None
) -> nn.Module:
    """Return the network of a configuration and a seed before its first step, its masks attached.

    Args:
        descent: where AI descends; by default on `device`.
    """
    rng = generators(seed)
    network = _dense(config, data, rng).to(device)
    if config.density < 1:
        _sparsify(network, config, data, rng, device, device if descent is None else descent)
    return network


def _dense(config: Run, data: Dataset, rng: Generators) -> nn.Module:
    network = build(
        config.model,
        classes=data.classes,
        in_shape=data.in_shape,
        activation=config.activation,
        generator=rng.init,
        **config.model_options,
    )
    recipe = config.recipe
    if recipe.dense_init != "default":
        dense_init(network, recipe.dense_init, gain=recipe.gain, bias_std=recipe.bias_std, generator=rng.init)
    return network


def shuffled(
    config: Run, data: Dataset, rng: Generators, device: torch.device, *, rank: int = 0, world: int = 1
) -> Loader:
    """Return the loader of the training samples."""
    return Loader(
        data.train,
        batch=config.recipe.batch,
        recipe=data.augmentation,
        seed=rng.data.initial_seed(),
        augment_seed=rng.augment.initial_seed(),
        device=device,
        rank=rank,
        world=world,
    )


def _still(split: Split, fabric: Fabric) -> Loader:
    """Return a loader that neither shuffles nor augments."""
    world = fabric.world_size
    batch = max(_EVAL_BATCH // world, 1) * world
    return Loader(split, batch=batch, train=False, device=fabric.device, rank=fabric.global_rank, world=world)


def _sparsify(
    network: nn.Module,
    config: Run,
    data: Dataset,
    rng: Generators,
    device: torch.device,
    descent: torch.device,
) -> None:
    # Scores see whole batches on every rank, so that the masks do not depend on how many ranks there are.
    whole = shuffled(config, data, rng, device)
    options = resolved(config.distribution, config.scheme, config.options)
    if config.scheme == "ai":
        options.setdefault("device", descent)  # its descent is long: thousands of products for every layer
    orthosparse.sparsify(
        network,
        config.density,
        distribution=config.distribution,
        scheme=config.scheme,
        **scored_on(config, whole),
        exclude=config.exclude,
        gain=config.recipe.gain,
        bias_std=config.recipe.bias_std,
        floor=config.floor,
        generator=rng.mask,
        **options,
    )


def _rewirer(
    config: Run, network: nn.Module, optimizer: torch.optim.Optimizer, steps: int, rng: Generators
) -> Rewirer | None:
    if config.dynamic is None:
        return None
    method = dict(DYNAMICS[config.dynamic])
    if config.until is not None:
        method["until"] = config.until
    return Rewirer(
        network,
        optimizer,
        every=config.every,
        fraction=config.fraction,
        steps=config.recipe.epochs * steps,
        generator=rng.rewire,
        **method,
    )


def _for_many_ranks(network: nn.Module, fabric: Fabric) -> nn.Module:
    """Let batch normalisation see the whole batch where several GPUs share it (torch has no such layer for CPUs)."""
    if fabric.world_size > 1 and fabric.device.type == "cuda":
        network = nn.SyncBatchNorm.convert_sync_batchnorm(network)
    return network
