"""Toy experiments that write down when they start, and a program that runs them as a runner of its own."""

import os
import signal
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

from orthosparse.lab.experiments import Experiment
from orthosparse.lab.sweep.engines import ENGINES
from orthosparse.lab.sweep.pairs import Pair, Task
from orthosparse.lab.sweep.runner import run
from orthosparse.lab.sweep.store import Store


@dataclass(frozen=True, eq=False)
class Toy(Experiment):
    kind: ClassVar[str] = "toy"

    name: str
    log: str
    seconds: float = 0.0
    error: str = ""
    deadly: bool = False
    price: float = 0.0

    def cost(self):
        return self.price or self.seconds

    def run(self, seed, *, root=None, out=None, device="auto", progress=None):
        with Path(self.log).open("a") as file:
            file.write(f"{self.name} {seed} {os.getpid()}\n")
        if self.error:
            raise ValueError(self.error)
        if self.deadly:
            os.kill(os.getpid(), signal.SIGKILL)
        for step in range(4):
            if progress is not None:
                progress(step / 4, f"step {step}")
            time.sleep(self.seconds / 4)
        return {"value": seed * len(self.name), "curves": {"steps": [0.0, 1 / 3]}}


def perform(task, progress, root=None):
    """Rows without provenance, which would import the whole lab."""
    rows = []
    for pair in task.pairs:
        metrics = pair.experiment.run(pair.seed, root=root, progress=progress)
        curves = metrics.pop("curves")
        rows.append(row_of(pair, metrics=metrics, curves=curves))
    return rows


def save_when_told(task, progress):
    """Work without end, as a training does: told to stop, it ends its step, saves, and stops."""
    from orthosparse.lab.process import Interrupt

    (pair,) = task.pairs
    folder, interrupt = Path(pair.experiment.log).parent, Interrupt()
    interrupt.install()
    (folder / f"{pair.experiment.name}.begun").touch()
    while not interrupt.requested:
        progress(0.5, "on and on")
        time.sleep(0.02)
    (folder / f"{pair.experiment.name}.saved").touch()
    raise KeyboardInterrupt


def row_of(pair, **changes):
    row = {"key": pair.experiment.key(), "seed": pair.seed, "kind": pair.experiment.kind}
    row |= {"fields": pair.experiment.described(), "metrics": {}, "curves": {}, "commit": None, "versions": {}}
    return row | {"device": "cpu", "wall_s": 0.5, "time": "2026-01-01T00:00:00+00:00"} | changes


def timed_row(experiment, wall_s, *, at="00:00", commit="one", together=None, **changes):
    """A row that was made "here", at an hour of one day."""
    metrics = {} if together is None else {"together": together}
    row = row_of(Pair(experiment, 1), device="here", wall_s=wall_s, commit=commit, metrics=metrics)
    return row | {"time": f"2026-01-01T{at}:00+00:00"} | changes


def task_of(*pairs):
    return Task(pairs, pairs)


def outcomes_of(engine, pairs):
    """Drive an engine as the runner does, and yield outcomes as they come."""
    tasks = (task_of(pair) for pair in pairs)
    with engine as running:
        while True:
            while running.has_room and (task := next(tasks, None)) is not None:
                running.start(task)
            if not running.running:
                return
            for _, outcomes in running.wait():
                yield from outcomes


class Toys:
    def __init__(self, log):
        self.log = Path(log)

    def pair(self, name="a", seed=1, **fields):
        return Pair(Toy(name, str(self.log), **fields), seed)

    def pairs(self, names, seeds=(1,), **fields):
        return [self.pair(name, seed, **fields) for seed in seeds for name in names]

    def starts(self):
        """(name, seed, process) of every start, in order."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [(name, int(seed), int(pid)) for name, seed, pid in map(str.split, lines)]

    def wait_for(self, count, seconds=60.0):
        """Wait until so many starts are written down, and return them."""
        end = time.monotonic() + seconds
        while len(self.starts()) < count:
            assert time.monotonic() < end, f"{len(self.starts())} of {count} started within {seconds} s"
            time.sleep(0.02)
        return self.starts()


def stand_ready(log, runners):
    """Wait until so many runners stand here: programs take their time to start."""
    ready = Path(f"{log}.ready")
    with ready.open("a") as file:
        file.write("ready\n")
    while len(ready.read_text().splitlines()) < runners:
        time.sleep(0.01)


if __name__ == "__main__":  # STORE LOG NAMES SEEDS SECONDS JOBS RUNNERS
    _, store, log, names, seeds, seconds, jobs, runners = sys.argv
    import sweep_toys  # not __main__: what is pickled must be found elsewhere

    sweep_toys.stand_ready(log, int(runners))
    run(
        sweep_toys.Toys(log).pairs(names.split(","), map(int, seeds.split(",")), seconds=float(seconds)),
        Store(store),
        partial(ENGINES["local"], jobs=int(jobs)),
        perform=sweep_toys.perform,
        poll=0.05,
    )
