"""Assembles a stack: the shape of its networks, slabs filled with their starts, and their data."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from orthosparse.lab.data import Dataset, load
from orthosparse.lab.data.stacked import StackedLoader
from orthosparse.lab.models import build
from orthosparse.lab.models.stages import Pool, as_rows, stages_of
from orthosparse.lab.process import processors
from orthosparse.lab.seeds import generators
from orthosparse.lab.training.assembly import evaluated, shuffled
from orthosparse.lab.training.callbacks import Report
from orthosparse.lab.training.checkpoint import locked
from orthosparse.lab.training.devices import device_of
from orthosparse.lab.training.run import Run, check_stackable
from orthosparse.lab.training.stacked.chain import Chain, Link, NormedLayer, Pooling
from orthosparse.lab.training.stacked.fused import run_of
from orthosparse.lab.training.stacked.slab import NormSlab, Slab
from orthosparse.lab.training.stacked.stack import Network, Stack
from orthosparse.lab.training.starts import STARTS, Start, forget_problems, make_starts, start_of
from orthosparse.lab.training.state import State

if TYPE_CHECKING:
    from lightning_fabric import Fabric

    from orthosparse.lab.models.resnet import ResNet
    from orthosparse.lab.training.stacked.maps import Maps
    from orthosparse.lab.training.stacked.residual import Residual

Pairs = Sequence[tuple[Run, int]]
_log = logging.getLogger(__name__)


def assemble_stack(
    pairs: Pairs,
    fabric: "Fabric",
    folder: Path | None = None,
    *,
    root: Path | str | None = None,
    workers: int | None = None,
    fused: bool | None = None,
    progress: Report | None = None,
    resumed: bool = False,
) -> State:
    """Return the stack of some runs before their first step.

    Args:
        folder: where starts are saved, so that each is made once; None saves nothing.
        workers, fused: see `train_many`.
        resumed: use only the masks of the starts, as the weights come from a checkpoint.

    Raises:
        ValueError: there are several processes.
    """
    if fabric.world_size > 1:
        raise ValueError(f"pairs: expected one process for all of them; got {fabric.world_size}")
    run = pairs[0][0]
    data = load(run.data, root, device=fabric.device, validation=run.validation)
    if workers is None and fabric.device.type != "cuda":
        workers = 1
    if folder is not None and not resumed:
        forget_problems(folder)
    starts = _made_starts(pairs, data, fabric.device, folder, root, workers, progress or _silent)
    return stack_of(pairs, starts, data, fabric, fused=fused, resumed=resumed)


def prepare_stack(
    pairs: Pairs, folder: Path, *, root: Path | str | None, device: str, progress: Report
) -> list[str | None]:
    """Make the starts of runs that will train in one stack, and save them in its folder; return their problems.

    A process for each processor makes them.

    Raises:
        ValueError: networks that cannot be stacked; a folder that another process uses.
    """
    check_stackable([run for run, _ in pairs])
    run, torch_device = pairs[0][0], device_of(device)
    with locked(folder):
        data = load(run.data, root, device=torch_device, validation=run.validation)
        forget_problems(folder)
        starts = _made_starts(pairs, data, torch_device, folder, root, None, progress)
        return [start.problem for start in starts]


def stack_of(
    pairs: Pairs,
    starts: Iterable[Start],
    data: Dataset,
    fabric: "Fabric",
    *,
    fused: bool | None = None,
    resumed: bool = False,
) -> State:
    """Return the stack of runs with these starts; a run whose start could not be made has stopped."""
    run, device = pairs[0][0], fabric.device
    precision = run.recipe.precision
    dtype = torch.float64 if precision == "fp64" else torch.float32
    compute = torch.bfloat16 if precision == "bf16" else dtype
    network, slabs, in_rows = network_of(run, data, len(pairs), (dtype, compute), device, fused)
    without_states = []  # as the slabs have all weights
    for index, start in enumerate(starts):
        if start.problem is None:
            for slab in slabs:
                slab.fill_masks(index, start.state) if resumed else slab.fill(index, start.state)
        without_states.append(replace(start, state={}))
    stack = Stack(pairs, network, slabs, without_states, in_rows, compute=compute, fused=fused)
    stack.move_masks_with(fabric, data)
    state = State(
        fabric=fabric,
        recipe=run.recipe,
        networks=stack,
        loader=StackedLoader([shuffled(each, data, generators(seed), device) for each, seed in pairs]),
        test=evaluated(data.test, fabric),
        validation=None if data.validation is None else evaluated(data.validation, fabric),
        classes=data.classes,
        seed=generators(pairs[0][1]).dropout.initial_seed(),
    )
    state.records.alive.copy_(torch.tensor([start.problem is None for start in without_states]))
    return state


def network_of(
    run: Run,
    data: Dataset,
    networks: int,
    dtypes: tuple[torch.dtype, torch.dtype],
    device: torch.device,
    fused: bool | None = None,
) -> tuple[Network, Sequence[Slab], Any]:
    """Return stacked networks of zeros, their slabs, and a function that turns images into rows.

    Args:
        dtypes: of the slabs, and of the operands of products.
    """
    single = build(
        run.model,
        classes=data.classes,
        in_shape=data.in_shape,
        activation=run.activation,
        generator=torch.Generator().manual_seed(0),  # only the shapes are used
        **run.model_options,
    )
    if not isinstance(single, nn.Sequential):
        residual: Any = single
        return (*residual_of(residual, data.in_shape, networks, dtypes, device, fused), channels_last_rows)
    stages = stages_of(single, data.in_shape)
    return (*chain_of(stages, networks, dtypes, device, fused), partial(as_rows, stages=stages))


def residual_of(
    single: "ResNet",
    in_shape: tuple[int, int, int],
    networks: int,
    dtypes: tuple[torch.dtype, torch.dtype],
    device: torch.device,
    fused: bool | None = None,
) -> "tuple[Residual, list[Slab]]":
    """Return stacked residual networks of zeros, and their slabs."""
    from orthosparse.lab.training.stacked.fused_maps import maps_of
    from orthosparse.lab.training.stacked.residual import Residual, layout_of

    dtype, compute = dtypes
    layout = layout_of(single, in_shape)
    normed = [NormSlab(stage, norms, networks, dtype, device) for stage, norms in layout.stages]
    head = Slab(layout.head, networks, dtype, device)
    maps = maps_of([stage for stage, _ in layout.stages], layout.activation, compute, device, fused)
    return Residual(layout, normed, run_of(head, compute, False), maps), [*normed, head]


def chain_of(
    stages: Sequence[Any],
    networks: int,
    dtypes: tuple[torch.dtype, torch.dtype],
    device: torch.device,
    fused: bool | None = None,
) -> tuple[Chain, list[Slab]]:
    """Return stacked sequential networks of zeros, and their slabs."""
    dtype, compute = dtypes
    maps = _norms_of(stages, compute, device, fused)
    links: list[Link] = []
    slabs: list[Slab] = []
    for stage in stages:
        if isinstance(stage, Pool):
            links.append(Pooling(stage))
        elif stage.norms is None:
            slabs.append(Slab(stage, networks, dtype, device))
            links.append(run_of(slabs[-1], compute, fused))
        else:
            slab = NormSlab(stage, stage.norms, networks, dtype, device, bias=True)
            slabs.append(slab)
            assert maps is not None, "a stage has normalisations"
            links.append(NormedLayer(slab, compute, maps))
    return Chain(links), slabs


def _norms_of(stages: Sequence[Any], compute: torch.dtype, device: torch.device, fused: bool | None) -> "Maps | None":
    """Return the operations of the normalisations; None if there are none."""
    normed = [stage.outputs for stage in stages if not isinstance(stage, Pool) and stage.norms is not None]
    if not normed:
        return None
    from orthosparse.lab.training.stacked.fused_maps import norms_of

    return norms_of(normed, compute, device, fused)


def channels_last_rows(images: Tensor) -> Tensor:
    """Return images ``[..., C, H, W]`` as rows of numbers, channels innermost."""
    return torch.movedim(images, -3, -1).flatten(-3)


def _made_starts(
    pairs: Pairs,
    data: Dataset,
    device: torch.device,
    folder: Path | None,
    root: Path | str | None,
    workers: int | None,
    report: Report,
) -> Iterator[Start]:
    """Yield the start of every run, one at a time: all of them need as much memory as the stack."""
    folders = [None if folder is None else folder / STARTS / f"{index:03d}" for index in range(len(pairs))]
    workers = processors() if workers is None else workers
    saved_in = [each for each in folders if each is not None]
    if saved_in and workers > 1:
        report(0.0, f"starts in {workers} processes")
        make_starts(pairs, saved_in, root, device, workers)
    for number, ((run, seed), start_folder) in enumerate(zip(pairs, folders, strict=True), start=1):
        report(0.0, f"start {number} of {len(pairs)}")
        start = start_of(run, seed, data, device, start_folder)
        if start.problem is not None:
            label = " ".join(filter(None, (run.model, run.distribution, run.scheme)))
            _log.warning("%s, seed %d, has no start and will not be trained: %s", label, seed, start.problem)
        yield start


def _silent(fraction: float, words: str) -> None:
    """Report nothing."""
