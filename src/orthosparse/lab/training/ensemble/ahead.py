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
from orthosparse.lab.training.config import TrainConfig
from orthosparse.lab.training.ensemble.starts import start_of

_log = logging.getLogger(__name__)
# AI descends for thousands of steps, scores take a pass a batch: what takes longest begins first.
_SLOW = ("ai",)


def make_ahead(
    members: Sequence[tuple[TrainConfig, int]],
    folders: Sequence[Path],
    root: Path | str | None,
    device: torch.device,
    workers: int,
) -> None:
    """Make the starts that are not in their folders yet, in so many processes; what they do not get done is left.

    Each is made on `device`, from data that each process reads for itself, as in a run alone. The processes import the
    main program anew, as those of `multiprocessing` do.
    """
    pairs = zip(members, folders, strict=True)
    tasks = [(config, seed, folder) for (config, seed), folder in pairs if not folder.exists()]
    if workers < 2 or len(tasks) < 2:
        return
    tasks.sort(key=lambda task: (task[0].score_batches, task[0].scheme in _SLOW), reverse=True)
    # A fresh interpreter, not a copy of this one: CUDA and threads do not survive a fork.
    spawn = multiprocessing.get_context("spawn")
    try:
        with ProcessPoolExecutor(min(workers, len(tasks)), spawn, torch.set_num_threads, (1,)) as pool:
            for _ in pool.map(_make, *zip(*tasks, strict=True), [root] * len(tasks), [device] * len(tasks)):
                pass
    except BrokenProcessPool as error:
        _log.warning("starts are made one after the other: %s", error)


def _make(config: TrainConfig, seed: int, folder: Path, root: Path | str | None, device: torch.device) -> None:
    start_of(config, seed, _data(config.data, root, device, config.validation), device, folder)


@cache
def _data(name: str, root: Path | str | None, device: torch.device, validation: bool) -> Dataset:
    """Return the data set, read once by each process."""
    return load(name, root, device=device, validation=validation)
