"""Starts made ahead by several processes: those that need no data and no GPU, while the GPU would wait for them."""

import logging
import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path

import torch

from orthosparse.lab.data import Dataset, Files, Split
from orthosparse.lab.training.config import TrainConfig
from orthosparse.lab.training.ensemble.starts import start_of

_log = logging.getLogger(__name__)
_DATA_FREE = ("dense_ends", "er", "erk", "uniform")
# AI is the one that computes much; it does so on the GPU.
_QUICK = ("base", "eoi", "sao")


def is_plain(config: TrainConfig) -> bool:
    """Return whether a start follows from the configuration and the seed alone, with the same bits on any device."""
    return config.density == 1 or (config.distribution in _DATA_FREE and config.scheme in _QUICK)


def make_ahead(
    members: Sequence[tuple[TrainConfig, int]], folders: Sequence[Path], data: Dataset, workers: int
) -> None:
    """Make the plain starts that are not in their folders yet, in so many processes; what they do not get done is left.

    The processes import the main program anew, as those of `multiprocessing` do.
    """
    pairs = zip(members, folders, strict=True)
    tasks = [(config, seed, folder) for (config, seed), folder in pairs if is_plain(config) and not folder.exists()]
    if workers < 2 or len(tasks) < 2:
        return
    shape = _shape(data)
    # A fresh interpreter, not a copy of this one: CUDA and threads do not survive a fork.
    spawn = multiprocessing.get_context("spawn")
    try:
        with ProcessPoolExecutor(min(workers, len(tasks)), spawn, torch.set_num_threads, (1,)) as pool:
            for _ in pool.map(_make, *zip(*tasks, strict=True), [shape] * len(tasks)):
                pass
    except BrokenProcessPool as error:
        _log.warning("starts are made one after the other: %s", error)


def _make(config: TrainConfig, seed: int, folder: Path, shape: Dataset) -> None:
    start_of(config, seed, shape, torch.device("cpu"), folder)


def _shape(data: Dataset) -> Dataset:
    """Return the set with one sample in it: small enough to be sent, and all that a plain start asks for."""
    images = data.train.images
    assert not isinstance(images, Files), "networks that train together have their images in memory"
    one = Split(images[:1].cpu().clone(), data.train.labels[:1].cpu().clone(), data.normalisation)
    return replace(data, train=one, validation=None, test=one)
