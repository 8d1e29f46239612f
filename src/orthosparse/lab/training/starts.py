"""The starts of runs: networks before their first step, made by several processes and saved in files."""

import json
import logging
import multiprocessing
import shutil
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
STARTS = "starts"  # the folder of them in that of a stack
# Processes that use the GPU at once; more would wait for each other.
_ON_DEVICE = 6
# Suffixes of the names of tensors in a state dict that are not trained.
_BUFFERS = ("_mask", ".running_mean", ".running_var", ".num_batches_tracked")


@dataclass(frozen=True)
class Start:
    """A run before its first step.

    Attributes:
        state: the state dict of its network; empty if it could not be made.
        density: of the layers that have masks; 1 without masks.
        parameters: their number, including masked ones.
        warnings: of the library while making it.
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
    """Return the start of a run: from its file in `folder` if there is one, else newly made and saved there.

    An error while making it is returned as the start's problem.

    Args:
        descent: the device of AI's descent; by default `device`, on which all else is computed.
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


def forget_problems(folder: Path) -> None:
    """Remove the starts of a stack that could not be made, so that a call after that one tries them again.

    Not once the stack has a checkpoint, which is one without these networks.
    """
    for start in sorted((folder / STARTS).glob("*")):
        if (tree := load(start)) is not None and tree["problem"] is not None:
            shutil.rmtree(start)


def _made(run: Run, seed: int, data: Dataset, device: torch.device, descent: torch.device) -> Start:
    with captured_warnings() as messages:
        try:
            network = started(run, seed, data, device, descent=descent)
        except torch.OutOfMemoryError:
            raise  # the machine's problem, not the run's
        except Exception as error:  # noqa: BLE001 - reported, while other runs continue
            return Start.of({}, messages, f"{type(error).__name__}: {' '.join(str(error).split())}")
    return Start.of({name: tensor.cpu() for name, tensor in network.state_dict().items()}, messages)


def check_starts(pairs: Sequence[tuple[Run, int]], root: Path | str | None, device: torch.device) -> None:
    """Raise the errors of the starts of these runs early: each run is started once, with one seed.

    AI stops at the beginning of its descent, and scores use a single batch.
    """
    runs = {json.dumps(run.settings(), sort_keys=True): (run, seed) for run, seed in pairs if run.density < 1}
    for run, seed in runs.values():
        data = _data(run.data, root, device, run.validation)
        with captured_warnings(), suppress(_DescentBegunError):  # warnings come when the start is made
            started(replace(run, score_batches=1), seed, data, device, progress=_stop_descent)


class _DescentBegunError(Exception):
    """AI has checked its arguments and begins its descent."""


def _stop_descent(what: str, done: int, total: int) -> None:
    del done, total
    if what == "ai":
        raise _DescentBegunError


def _packed(state: dict[str, Tensor]) -> dict[str, Any]:
    """Return a state dict in less space: only the active ones of masked weights, and a bit for each entry of masks."""
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
    """Make the starts that are not in their folders, in so many processes; if a process dies, some are not made.

    Starts are made on the CPU, from data that each process reads; AI's descent and scores of many batches, which are
    slow there, are computed on `device`. The processes import the main program, as usual with `multiprocessing`.
    """
    targets = zip(pairs, folders, strict=True)
    tasks = [(run, seed, folder) for (run, seed), folder in targets if not folder.exists()]
    if workers < 2 or len(tasks) < 2:
        return
    slow = sorted((task for task in tasks if is_slow(task[0])), key=lambda task: -task[0].score_batches)
    quick = [task for task in tasks if not is_slow(task[0])]
    try:
        with _pool(min(_ON_DEVICE, workers)) as on_device, _pool(workers) as on_cpu:
            futures = [on_device.submit(_make, *task, root, device) for task in slow]
            futures += [on_cpu.submit(_make, *task, root, torch.device("cpu")) for task in quick]
            for future in futures:
                future.result()
    except BrokenProcessPool as error:
        _log.warning("starts are made one after the other: %s", error)


def is_slow(run: Run) -> bool:
    """Return whether a start takes minutes on a CPU."""
    return run.density < 1 and (run.scheme == "ai" or run.score_batches > 1)


def _pool(workers: int) -> ProcessPoolExecutor:
    # New interpreters, as CUDA and threads do not survive a fork.
    spawn = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(workers, spawn, torch.set_num_threads, (1,))


def _make(run: Run, seed: int, folder: Path, root: Path | str | None, device: torch.device) -> None:
    # Layer by layer, a GPU is slower than a CPU: it only computes scores and descents.
    data_device = device if run.score_batches > 1 else torch.device("cpu")
    start_of(run, seed, _data(run.data, root, data_device, run.validation), data_device, folder, descent=device)


@cache
def _data(name: str, root: Path | str | None, device: torch.device, validation: bool) -> Dataset:
    """Return the data set, read once by each process."""
    return load_data(name, root, device=device, validation=validation)
