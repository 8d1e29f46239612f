"""From the description of a run and a seed to its metrics, killed and resumed as often as it happens."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from lightning_fabric import Fabric

from orthosparse import masks_of
from orthosparse.lab.files import locked
from orthosparse.lab.training.assembly import Assembled, assemble
from orthosparse.lab.training.callbacks import Callback
from orthosparse.lab.training.checkpoint import has_checkpoint
from orthosparse.lab.training.devices import arithmetic, launch
from orthosparse.lab.training.evaluate import evaluate
from orthosparse.lab.training.logs import LOGS
from orthosparse.lab.training.loop import fit
from orthosparse.lab.training.nonfinite import NonFiniteError
from orthosparse.lab.training.progress import Report, Reports
from orthosparse.lab.training.run import Run
from orthosparse.lab.training.saving import Saving, check_pace, check_same, last_checkpoint
from orthosparse.lab.training.snapshot import put_back
from orthosparse.registry import lookup


def train(
    run: Run,
    seed: int,
    *,
    root: Path | str | None = None,
    out: Path | str | None = None,
    resume: bool = False,
    logs: Sequence[str] = ("csv",),
    checkpoint_steps: int = 0,
    checkpoint_seconds: float = 60.0,
    progress: Report | None = None,
    callbacks: Sequence[Callback] = (),
    graph: bool | None = None,
    compiled: bool = False,
    channels_last: bool | None = None,
    deterministic: bool = False,
    **where: Any,
) -> dict[str, Any]:
    """Train a network, test it after its last epoch, and return its metrics.

    The metric ``curves`` holds lists with a number for each epoch. A loss or gradient that is not finite stops the
    training. That is a result too: ``diverged``, without a test accuracy; the last good checkpoint is kept.

    Args:
        root: the folder of the data.
        out: the folder of checkpoints and logs; None keeps nothing.
        resume: go on from the last checkpoint in `out` (from the start where there is none).
        logs: names in LOGS.
        checkpoint_steps, checkpoint_seconds: see `Saving`.
        progress: called with the fraction done and a few words, twice a second at most.
        graph, compiled: see `Stepper`.
        channels_last: the layout of images and kernels; None takes it on a GPU.
        where: device, devices and strategy, as `launch` takes them.

    Raises:
        ValueError: a bad setting; a folder that holds another run, or that another process uses.
    """
    check_pace(checkpoint_steps, checkpoint_seconds)
    settings = {"run": run.settings(), "seed": seed}
    makers = [lookup(LOGS, name, "log") for name in logs]
    fabric = launch(precision=run.recipe.precision, **where)
    with _folder(out, fabric, resume) as folder:
        tree = None if folder is None else last_checkpoint(fabric, folder)
        if tree is not None:
            check_same(tree["settings"], settings)
        nhwc = fabric.device.type == "cuda" if channels_last is None else channels_last
        saved = None if tree is None else tree["model"]
        made = assemble(run, seed, fabric, root=root, channels_last=nhwc, saved=saved)
        if tree is not None:
            put_back(made.state, tree)
        before = made.state.seconds
        kept: list[Callback] = [] if progress is None else [Reports(progress)]
        if folder is not None:
            kept += [make(folder, settings) for make in makers]
            kept.append(Saving(folder, settings, every=checkpoint_steps, seconds=checkpoint_seconds))
        try:
            fit(made.state, [*callbacks, *kept], graph=graph, compiled=compiled, deterministic=deterministic)
        except NonFiniteError as error:
            return {"diverged": True, **told_of(error), **timed(made.state, before)}
        with arithmetic(run.recipe.precision, deterministic=deterministic):
            tested = evaluate(made.state, made.test)
        return {"diverged": False, **_figures(made, tested), **timed(made.state, before)}


def told_of(error: NonFiniteError) -> dict[str, Any]:
    """Return the metrics that say where a training stopped, and why."""
    return {"diverged_epoch": error.epoch + 1, "warnings": str(error)}


def timed(state: Any, before: float) -> dict[str, Any]:
    """Return the times and the curves of a run, of which `before` seconds lie in earlier parts."""
    return {
        "epochs": len(state.history),
        "train_seconds": state.seconds,
        "resumed_seconds": before,
        "curves": curves_of(state.history),
    }


def curves_of(history: Sequence[dict[str, float]]) -> dict[str, list[float]]:
    """Return the metrics of epochs as a list for each."""
    names = [name for name in history[0] if name != "epoch"] if history else []
    return {name: [epoch[name] for epoch in history] for name in names}


def _figures(made: Assembled, tested: dict[str, float]) -> dict[str, Any]:
    masks = list(masks_of(made.state.network).values())
    return {
        "test_accuracy": tested["accuracy"],
        "test_loss": tested["loss"],
        "density": sum(int(m.sum()) for m in masks) / sum(m.numel() for m in masks) if masks else 1.0,
        "parameters": made.parameters,
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
            if not problem and not resume and has_checkpoint(folder):
                problem = f"out: {folder} holds a run already; resume it (--resume) or choose another folder"
        if problem := fabric.broadcast(problem):
            raise ValueError(problem)
        yield folder
