"""Puts an ensemble together: its stages, its slabs filled with the starts of its members, and their data."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import torch

from orthosparse.lab.data import Dataset, Loader, Split
from orthosparse.lab.models import build
from orthosparse.lab.models.resnet import ResNet
from orthosparse.lab.seeds import generators
from orthosparse.lab.training.assembly import shuffled
from orthosparse.lab.training.ensemble.chain import Chain
from orthosparse.lab.training.ensemble.feed import Feed
from orthosparse.lab.training.ensemble.layout import layout_of
from orthosparse.lab.training.ensemble.network import Network
from orthosparse.lab.training.ensemble.normed import Normed
from orthosparse.lab.training.ensemble.residual import Residual
from orthosparse.lab.training.ensemble.slab import Slab, Weights
from orthosparse.lab.training.ensemble.stages import Stage, stages_of
from orthosparse.lab.training.ensemble.starts import Start
from orthosparse.lab.training.ensemble.state import Ensemble
from orthosparse.lab.training.ensemble.ways import Ways
from orthosparse.lab.training.run import Run

_EVAL_BATCH = 500  # samples at a time when evaluating; it changes no result
Members = Sequence[tuple[Run, int]]


def ensemble_of(
    members: Members, starts: Iterable[Start], data: Dataset, device: torch.device, ways: Ways
) -> tuple[Ensemble, list[Start]]:
    """Return the ensemble before its first step, and the starts without their weights, which it has now.

    A member that could not be made is dead from the beginning.
    """
    config = members[0][0]
    precision = config.recipe.precision
    dtype = torch.float64 if precision == "fp64" else torch.float32
    compute = torch.bfloat16 if precision == "bf16" else dtype
    network, slabs = _network(config, data, len(members), (dtype, compute), device, ways)
    light = []
    for place, start in enumerate(starts):
        if start.problem is None:
            for slab in slabs:
                slab.fill(place, start.state)
        light.append(replace(start, state={}))
    ensemble = Ensemble(
        configs=[own for own, _ in members],
        network=network,
        slabs=slabs,
        feed=Feed([shuffled(own, data, generators(seed), device) for own, seed in members]),
        test=_still(data.test, device),
        validation=None if data.validation is None else _still(data.validation, device),
        device=device,
    )
    ensemble.records.alive.copy_(torch.tensor([start.problem is None for start in light]))
    return ensemble, light


def _network(
    config: Run,
    data: Dataset,
    members: int,
    dtypes: tuple[torch.dtype, torch.dtype],
    device: torch.device,
    ways: Ways,
) -> tuple[Network, Sequence[Weights]]:
    """Return stacked networks of zeros, and their slabs; `dtypes` are of these and of products."""
    keep, compute = dtypes
    single = build(
        config.model,
        classes=data.classes,
        in_shape=data.in_shape,
        activation=config.activation,
        generator=torch.Generator().manual_seed(0),  # only its shape is read
        **config.model_options,
    )
    if isinstance(single, ResNet):
        layout = layout_of(single, data.in_shape)
        normed = [Normed(stage, norms, members, keep, device) for stage, norms in layout.stages]
        head = Slab(layout.head, members, keep, device)
        return Residual(layout, normed, head, compute, ways), [*normed, head]
    stages = stages_of(single, data.in_shape)
    slabs = [Slab(stage, members, keep, device) for stage in stages if isinstance(stage, Stage)]
    return Chain(stages, slabs, compute, ways), slabs


def _still(split: Split, device: torch.device) -> Loader:
    return Loader(split, batch=_EVAL_BATCH, train=False, device=device)
