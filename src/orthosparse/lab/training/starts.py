"""The starts of runs: networks before their first step, made by several processes, each kept in a file."""

import json
import logging
import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from orthosparse.lab.data import Dataset
from orthosparse.lab.data import load as load_data
from orthosparse.lab.provenance import captured_warnings
from orthosparse.lab.training.assembly import started
from orthosparse.lab.training.checkpoint import load, save, tidy
from orthosparse.lab.training.run import Run
from orthosparse.lab.training.saving import check_same

_log = logging.getLogger(__name__)
# Processes that use the GPU at once: more of them would wait for each other there.
_ON_DEVICE = 6
# Ends of the names, in a state dict, of what is not trained.
_BUFFERS = ("_mask", ".running_mean", ".running_var", ".num_batches_tracked")


@dataclass(frozen=True)
class Start:
    """A run before its first step.

    Attributes:
        state: the state dict of its network; empty where it could not be made.
        density: the share of weights that are active, of the layers that have masks; 1 without any.
        parameters: how many the network has, masked ones included.
        warnings: what the library said while making it.
        problem: why it could not be made, or None.
    """

    state: dict[str, Tensor]
    density: float = 1.0
    parameters: int = 0
    warnings: list[str] = field(default_factory=list)
    problem: str | None = None

    @classmethod
    def of(cls, state: dict[str, Tensor], warnings: Sequence[str] = (), problem: str | None = None) -> "Start":
        """Return the start of a network that has this state dict."""
        masks = [tensor for name, tensor in state.items() if name.endswith("_mask")]
        density = sum(int(m.sum()) for m in masks) / sum(m.numel() for m in masks) if masks else 1.0
        parameters = sum(tensor.numel() for name, tensor in state.items() if not name.endswith(_BUFFERS))
        return cls(state, density, parameters, list(warnings), problem)


def start_of(
    run: Run,
    seed: int,
    data: Dataset,
    device: torch.device,
    folder: Path | None,
    *,
    descent: torch.device | None = None,
) -> Start:
    """Return the start of a run, from its file in `folder` if it is there; else it is made, and kept there.

    An error while making it is that run's alone: it is part of what is returned.

    Args:
        descent: where AI descends; by default on `device`, where all else is made.
    """
    settings = {"run": run.settings(), "seed": seed}
    if folder is not None and folder.exists():
        tidy(folder)
        if (tree := load(folder)) is not None:
            check_same(tree["settings"], settings)
            return Start.of(_unpacked(tree["state"]), tree["warnings"], tree["problem"])
    start = _made(run, seed, data, device, device if descent is None else descent)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        tree = {"settings": settings, "warnings": start.warnings, "problem": start.problem}
        save(folder, 0, {**tree, "state": _packed(start.state)})
    return start


def _made(run: Run, seed: int, data: Dataset, device: torch.device, descent: torch.device) -> Start:
    with captured_warnings() as messages:
        try:
            network = started(run, seed, data, device, descent=descent)
        except torch.OutOfMemoryError:
            raise  # the machine's problem, not the run's
        except Exception as error:  # noqa: BLE001 - whatever it is, the others go on and it is reported
            return Start.of({}, messages, f"{type(error).__name__}: {' '.join(str(error).split())}")
    return Start.of({name: tensor.cpu() for name, tensor in network.state_dict().items()}, messages)


def check_starts(pairs: Sequence[tuple[Run, int]], root: Path | str | None, device: torch.device) -> None:
    """Raise what a start of these runs raises, before minutes go into the others: each is drawn once, for one seed.

    AI only begins its descent, and scores are those of one batch.
    """
    runs = {json.dumps(run.settings(), sort_keys=True): (run, seed) for run, seed in pairs if run.density < 1}
    for run, seed in runs.values():
        data = _data(run.data, root, device, run.validation)
        with captured_warnings(), suppress(_DescentBegunError):  # what it warns of is said when it is made
            started(replace(run, score_batches=1), seed, data, device, progress=_stop_descent)


class _DescentBegunError(Exception):
    """AI has checked all that it was given, and descends."""


def _stop_descent(what: str, done: int, total: int) -> None:
    del done, total
    if what == "ai":
        raise _DescentBegunError


def _packed(state: dict[str, Tensor]) -> dict[str, Any]:
    """Return a state dict in less space: of masked weights the active ones, and of masks a bit an entry."""
    entries: dict[str, Any] = {}
    for name, tensor in state.items():
        mask = state.get(f"{name}_mask")
        if tensor.dtype == torch.bool:
            bits = torch.from_numpy(np.packbits(tensor.flatten().numpy()))
            entries[name] = {"bits": bits, "shape": list(tensor.shape)}
        else:
            entries[name] = {"values": tensor if mask is None else tensor[mask]}
    return entries


def _unpacked(entries: dict[str, Any]) -> dict[str, Tensor]:
    masks = {name: _mask(entry) for name, entry in entries.items() if "bits" in entry}
    state = {}
    for name, entry in entries.items():
        mask = masks.get(f"{name}_mask")
        if name in masks:
            state[name] = masks[name]
        elif mask is None:
            state[name] = entry["values"]
        else:
            state[name] = torch.zeros(mask.shape, dtype=entry["values"].dtype).masked_scatter_(mask, entry["values"])
    return state


def _mask(entry: dict[str, Any]) -> Tensor:
    count = int(np.prod(entry["shape"]))
    return torch.from_numpy(np.unpackbits(entry["bits"].numpy(), count=count)).bool().view(entry["shape"])


def make_starts(
    pairs: Sequence[tuple[Run, int]],
    folders: Sequence[Path],
    root: Path | str | None,
    device: torch.device,
    workers: int,
) -> None:
    """Make the starts that are not in their folders yet, in so many processes; what they do not get done is left.

    Starts are made on the CPU, from data that each process reads for itself; what takes long there is done on `device`:
    the descent of AI, and scores of many batches. The processes import the main program anew, as those of
    `multiprocessing` do.
    """
    both = zip(pairs, folders, strict=True)
    tasks = [(run, seed, folder) for (run, seed), folder in both if not folder.exists()]
    if workers < 2 or len(tasks) < 2:
        return
    slow = sorted((task for task in tasks if is_slow(task[0])), key=lambda task: -task[0].score_batches)
    quick = [task for task in tasks if not is_slow(task[0])]
    try:
        with _pool(min(_ON_DEVICE, workers)) as on_device, _pool(workers) as on_cpu:
            made = [on_device.submit(_make, *task, root, device) for task in slow]
            made += [on_cpu.submit(_make, *task, root, torch.device("cpu")) for task in quick]
            for each in made:
                each.result()
    except BrokenProcessPool as error:
        _log.warning("starts are made one after the other: %s", error)


def is_slow(run: Run) -> bool:
    """Return whether a start takes minutes on a CPU."""
    return run.density < 1 and (run.scheme == "ai" or run.score_batches > 1)


def _pool(workers: int) -> ProcessPoolExecutor:
    # Fresh interpreters, not copies of this one: CUDA and threads do not survive a fork.
    spawn = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(workers, spawn, torch.set_num_threads, (1,))


def _make(run: Run, seed: int, folder: Path, root: Path | str | None, device: torch.device) -> None:
    # Layer by layer a GPU is slower than a CPU: only scores and descents are sent there.
    place = device if run.score_batches > 1 else torch.device("cpu")
    start_of(run, seed, _data(run.data, root, place, run.validation), place, folder, descent=device)


@cache
def _data(name: str, root: Path | str | None, device: torch.device, validation: bool) -> Dataset:
    """Return the data set, read once by each process."""
    return load_data(name, root, device=device, validation=validation)
