"""Starts made ahead by several processes: one after the other they would take longer than many a training."""

import logging
import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import cache
from pathlib import Path

import torch

from orthosparse.lab.data import Dataset, load
from orthosparse.lab.training.ensemble.starts import start_of
from orthosparse.lab.training.run import Run

_log = logging.getLogger(__name__)
# Processes that use the GPU at once: more of them would wait for each other there.
_ON_DEVICE = 6


def make_ahead(
    members: Sequence[tuple[Run, int]],
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
    pairs = zip(members, folders, strict=True)
    tasks = [(config, seed, folder) for (config, seed), folder in pairs if not folder.exists()]
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


def is_slow(config: Run) -> bool:
    """Return whether a start takes minutes on a CPU."""
    return config.density < 1 and (config.scheme == "ai" or config.score_batches > 1)


def _pool(workers: int) -> ProcessPoolExecutor:
    # Fresh interpreters, not copies of this one: CUDA and threads do not survive a fork.
    spawn = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(workers, spawn, torch.set_num_threads, (1,))


def _make(config: Run, seed: int, folder: Path, root: Path | str | None, device: torch.device) -> None:
    # Layer by layer a GPU is slower than a CPU: only scores and descents are sent there.
    place = device if config.score_batches > 1 else torch.device("cpu")
    start_of(config, seed, _data(config.data, root, place, config.validation), place, folder, descent=device)


@cache
def _data(name: str, root: Path | str | None, device: torch.device, validation: bool) -> Dataset:
    """Return the data set, read once by each process."""
    return load(name, root, device=device, validation=validation)
