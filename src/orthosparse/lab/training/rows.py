"""Trains runs from their descriptions to their metrics; a run that was killed can be resumed."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from orthosparse.lab.training.assembly import assemble
from orthosparse.lab.training.callbacks import LOGS, Callback, Report, Reports
from orthosparse.lab.training.checkpoint import Parts, has_checkpoint, locked
from orthosparse.lab.training.devices import arithmetic, launch
from orthosparse.lab.training.loop import evaluate, fit
from orthosparse.lab.training.run import Run, check_stackable
from orthosparse.lab.training.saving import Saving, check_pace, last_checkpoint, restore
from orthosparse.lab.training.single import Single
from orthosparse.lab.training.state import State
from orthosparse.registry import lookup

if TYPE_CHECKING:
    from lightning_fabric import Fabric

Metrics = dict[str, Any]
_Make = Callable[["Fabric", Path | None, dict[str, Any] | None], State]


def train(
    run: Run,
    seed: int,
    *,
    root: Path | str | None = None,
    logs: Sequence[str] = ("csv",),
    compiled: bool = False,
    channels_last: bool | None = None,
    **options: Any,
) -> Metrics:
    """Train a network, test it after its last epoch, and return its metrics.

    The metric ``curves`` holds lists with a number for each epoch. A loss or gradient that is not finite stops the
    training. The metrics are then ``diverged``, without a test accuracy; the last good checkpoint stays.

    Args:
        root: the folder of the data.
        logs: names in LOGS.
        compiled: see `Single.compile`.
        channels_last: whether images and kernels are in this memory format; None means on a GPU.
        options: see `_trained`; device, devices and strategy, as `launch` takes them.

    Raises:
        ValueError: a bad setting; a folder that holds another run, or that another process uses.
    """

    def make(fabric: "Fabric", folder: Path | None, tree: dict[str, Any] | None) -> State:
        del folder  # a single run has only checkpoints there
        nhwc = fabric.device.type == "cuda" if channels_last is None else channels_last
        saved = None if tree is None else tree["model"]
        state = assemble(run, seed, fabric, root=root, channels_last=nhwc, saved=saved)
        if compiled:
            state.networks.compile()  # type: ignore[attr-defined]  # a single network
        return state

    settings = {"run": run.settings(), "seed": seed}
    try:
        state, metrics = _trained(make, run, settings, Single.parts, logs=logs, **options)
    finally:
        if compiled:
            torch.compiler.reset()  # torch compiles at most eight networks with masks, and runs others eagerly
    error = state.errors.get(0)
    return metrics[0] | ({} if error is None else {"warnings": str(error)})


def train_many(
    pairs: Sequence[tuple[Run, int]],
    *,
    root: Path | str | None = None,
    workers: int | None = None,
    fused: bool | None = None,
    progress: Report | None = None,
    **options: Any,
) -> list[Metrics | Exception]:
    """Train networks of one shape, data set and recipe in one stack, and return the metrics of each, as `train` does.

    Each has the start, the masks and the order of samples that it would have in a single run. A network whose loss or
    gradient is not finite stops; the others do not change by a bit. The metric ``together`` is the number of networks
    in the stack, and ``warnings`` are those of the library about the start. If a start could not be made, the error
    is returned instead of metrics.

    Args:
        pairs: descriptions and seeds, which differ only in starts, masks and seeds (see `stack_key`).
        workers: processes that make starts, only with a folder; None means one for each processor on a machine with a
            GPU, which would wait for them, else a single one.
        fused: compute with our own GPU kernels; None does so if they fit and are faster.
        options: see `_trained`; the folder `out` also holds the starts. `device` is that of `launch`.

    Raises:
        ValueError: networks that cannot be stacked; a folder that holds another run, or that another process uses.

    Example:
        >>> from orthosparse.lab.training import Recipe, Run
        >>> recipe = Recipe(epochs=1, lr=0.1, dense_init="orthogonal")
        >>> sparse, dense = (Run("mlp", "digits", recipe, density=density) for density in (0.3, 1.0))
        >>> [round(each["density"], 2) for each in train_many([(sparse, 1), (sparse, 2), (dense, 1)], device="cpu")]
        [0.3, 0.3, 1.0]
    """
    from orthosparse.lab.training.stacked.assembly import assemble_stack
    from orthosparse.lab.training.stacked.stack import Stack

    check_stackable([run for run, _ in pairs])

    def make(fabric: "Fabric", folder: Path | None, tree: dict[str, Any] | None) -> State:
        return assemble_stack(
            pairs, fabric, folder, root=root, workers=workers, fused=fused, progress=progress, resumed=tree is not None
        )

    settings = {str(index): {"run": run.settings(), "seed": seed} for index, (run, seed) in enumerate(pairs)}
    options = {"checkpoint_seconds": 120.0, "progress": progress, **options}
    state, all_metrics = _trained(make, pairs[0][0], settings, Stack.parts, **options)
    starts = state.networks.starts  # type: ignore[attr-defined]  # of a stack
    together = sum(start.problem is None for start in starts)
    rows: list[Metrics | Exception] = []
    for index, (start, metrics) in enumerate(zip(starts, all_metrics, strict=True)):
        if start.problem is not None:
            rows.append(RuntimeError(start.problem))
            continue
        errors = [str(state.errors[index])] if index in state.errors else []
        messages = dict.fromkeys([*start.warnings, *errors])
        warnings = {"warnings": "; ".join(messages)} if messages else {}
        rows.append({"together": together, **metrics, **warnings})
    return rows


def _trained(
    make: _Make,
    run: Run,
    settings: dict[str, Any],
    parts: Parts,
    *,
    out: Path | str | None = None,
    resume: bool = False,
    logs: Sequence[str] = (),
    checkpoint_steps: int = 0,
    checkpoint_seconds: float = 60.0,
    progress: Report | None = None,
    callbacks: Sequence[Callback] = (),
    graph: bool | None = None,
    deterministic: bool = False,
    **where: Any,
) -> tuple[State, list[Metrics]]:
    """Train and test what `make` returns; return its state at the end, and the metrics of each network.

    Args:
        out: the folder of checkpoints and logs; None writes none.
        resume: continue from the last checkpoint in `out`, or from the start if there is none.
        checkpoint_steps, checkpoint_seconds: see `Saving`.
        progress: called with the fraction done and a few words, at most twice a second.
        graph: see `Stepper`.
    """
    check_pace(checkpoint_steps, checkpoint_seconds)
    makers = [lookup(LOGS, name, "log") for name in logs]
    fabric = launch(precision=run.recipe.precision, **where)
    with _folder(out, fabric, resume) as folder:
        tree = None if folder is None else last_checkpoint(fabric, folder, parts, settings)
        state = make(fabric, folder, tree)
        if tree is not None:
            restore(state, tree)
        del tree  # as large as the networks
        before = state.seconds
        own_callbacks: list[Callback] = [] if progress is None else [Reports(progress)]
        if folder is not None:
            own_callbacks += [maker(folder, settings) for maker in makers]
            own_callbacks.append(Saving(folder, settings, every=checkpoint_steps, seconds=checkpoint_seconds))
        fit(state, [*callbacks, *own_callbacks], graph=graph, deterministic=deterministic)
        with arithmetic(run.recipe.precision, deterministic=deterministic):
            return state, _metrics(state, before)


def _metrics(state: State, before: float) -> list[Metrics]:
    """Return the metrics of each network; `before` is the time of earlier parts of the run in seconds."""
    tested = evaluate(state, state.test) if state.is_alive() else [{}] * state.networks.count
    metrics = []
    for index, (figures, density) in enumerate(zip(tested, state.networks.densities(), strict=True)):
        history = state.histories[index]
        times = {"epochs": len(history), "train_seconds": state.seconds, "resumed_seconds": before}
        outcome: Metrics
        if index in state.errors:
            outcome = {"diverged": True, "diverged_epoch": state.errors[index].epoch + 1}
        else:
            sizes = {"density": density, "parameters": state.networks.parameters}
            outcome = {"diverged": False, **{f"test_{name}": value for name, value in figures.items()}, **sizes}
        metrics.append({**outcome, **times, "curves": _curves(history)})
    return metrics


def _curves(history: Sequence[dict[str, float]]) -> dict[str, list[float]]:
    """Return the metrics of epochs as a list for each."""
    names = [name for name in history[0] if name != "epoch"] if history else []
    return {name: [epoch[name] for epoch in history] for name in names}


@contextmanager
def _folder(out: Path | str | None, fabric: "Fabric", resume: bool) -> Iterator[Path | None]:
    """Yield the folder of the run, created if it does not exist; rank 0 locks it and decides for all ranks.

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
