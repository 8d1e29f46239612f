"""One run from its settings to its result row, killed and resumed as often as it happens."""

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from lightning_fabric import Fabric

from orthosparse import masks_of
from orthosparse.lab.files import locked, write_atomically
from orthosparse.lab.provenance import provenance
from orthosparse.lab.training.assembly import Assembled, assemble
from orthosparse.lab.training.callbacks import Callback
from orthosparse.lab.training.checkpoint import has_checkpoint
from orthosparse.lab.training.config import TrainConfig
from orthosparse.lab.training.devices import arithmetic, launch
from orthosparse.lab.training.evaluate import evaluate
from orthosparse.lab.training.finished import record_of
from orthosparse.lab.training.logs import LOGS
from orthosparse.lab.training.loop import fit
from orthosparse.lab.training.saving import Saving, check_pace, check_same, last_checkpoint
from orthosparse.lab.training.snapshot import put_back
from orthosparse.registry import lookup

RESULT = "result.jsonl"


def train(
    config: TrainConfig,
    *,
    seed: int,
    root: Path | str | None = None,
    out: Path | str | None = None,
    resume: bool = False,
    logs: Sequence[str] = ("csv",),
    checkpoint_steps: int = 0,
    checkpoint_seconds: float = 60.0,
    callbacks: Sequence[Callback] = (),
    graph: bool | None = None,
    compiled: bool = False,
    channels_last: bool | None = None,
    deterministic: bool = False,
    **where: Any,
) -> dict[str, Any]:
    """Train a network, test it after its last epoch, and return the result row.

    Args:
        root: the folder of the data.
        out: the folder of checkpoints, logs and ``result.jsonl``; None keeps nothing.
        resume: go on from the last checkpoint in `out` (from the start where there is none); a finished run returns its
            row again.
        logs: names in LOGS.
        checkpoint_steps, checkpoint_seconds: see `Saving`.
        graph, compiled: see `Stepper`.
        channels_last: the layout of images and kernels; None takes it on a GPU.
        where: device, devices and strategy, as `launch` takes them.

    Raises:
        ValueError: a bad setting; a folder that holds another run, or that another process uses.
        NonFiniteError: a loss or a gradient was not finite; the last good checkpoint is kept.
    """
    check_pace(checkpoint_steps, checkpoint_seconds)
    settings = {"config": config.settings(), "seed": seed}
    makers = [lookup(LOGS, name, "log") for name in logs]
    fabric = launch(precision=config.recipe.precision, **where)
    with _folder(out, fabric, resume) as folder:
        if folder is not None and (finished := _finished(folder, settings)) is not None:
            return finished
        tree = None if folder is None else last_checkpoint(fabric, folder)
        if tree is not None:
            check_same(tree["settings"], settings)
        nhwc = fabric.device.type == "cuda" if channels_last is None else channels_last
        saved = None if tree is None else tree["model"]
        run = assemble(config, seed, fabric, root=root, channels_last=nhwc, saved=saved)
        if tree is not None:
            put_back(run.state, tree)
        kept: list[Callback] = []
        if folder is not None:
            kept = [make(folder, settings) for make in makers]
            kept.append(Saving(folder, settings, every=checkpoint_steps, seconds=checkpoint_seconds))
        fit(run.state, [*callbacks, *kept], graph=graph, compiled=compiled, deterministic=deterministic)
        with arithmetic(config.recipe.precision, deterministic=deterministic):
            tested = evaluate(run.state, run.test)
        row = {**settings, **_figures(run, tested), "world": fabric.world_size, **provenance(fabric.device)}
        if folder is not None and fabric.is_global_zero:
            write_atomically(folder / RESULT, (json.dumps(row) + "\n").encode())
        return row


def _figures(run: Assembled, tested: dict[str, float]) -> dict[str, Any]:
    masks = list(masks_of(run.state.network).values())
    return {
        "test_accuracy": tested["accuracy"],
        "test_loss": tested["loss"],
        "density": sum(int(m.sum()) for m in masks) / sum(m.numel() for m in masks) if masks else 1.0,
        "parameters": run.parameters,
        "epochs": run.state.history,
        "seconds": run.state.seconds,
    }


@contextmanager
def _folder(out: Path | str | None, fabric: Fabric, resume: bool) -> Iterator[Path | None]:
    """Yield the folder of the run, made if it is not there; rank 0 locks it, and decides for all ranks.

    Raises:
        ValueError: another process uses it; it holds a run, and this one is not to resume it.
    """
    if out is None:
        yield None
        return
    folder, problem = Path(out), ""
    with ExitStack() as stack:
        if fabric.is_global_zero:
            try:
                stack.enter_context(locked(folder))
            except (ValueError, OSError) as error:
                problem = str(error)
            if not problem and not resume and (has_checkpoint(folder) or (folder / RESULT).exists()):
                problem = f"out: {folder} holds a run already; resume it (--resume) or choose another folder"
        if problem := fabric.broadcast(problem):
            raise ValueError(problem)
        yield folder


def _finished(folder: Path, settings: dict[str, Any]) -> dict[str, Any] | None:
    """Return the row of a run that has ended, or None."""
    row = record_of(folder / RESULT, (*settings, "test_accuracy", "test_loss", "density"))
    if row is not None:
        check_same({name: row[name] for name in settings}, settings)
    return row
