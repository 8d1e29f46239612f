"""From descriptions of runs and seeds to metrics, killed and resumed as often as it happens."""

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
    training. That is a result too: ``diverged``, without a test accuracy; the last good checkpoint is kept.

    Args:
        root: the folder of the data.
        logs: names in LOGS.
        compiled: see `Single.compile`.
        channels_last: the layout of images and kernels; None takes it on a GPU.
        options: see `_trained`; device, devices and strategy, as `launch` takes them.

    Raises:
        ValueError: a bad setting; a folder that holds another run, or that another process uses.
    """

    def make(fabric: "Fabric", folder: Path | None, tree: dict[str, Any] | None) -> State:
        del folder  # for checkpoints alone
        nhwc = fabric.device.type == "cuda" if channels_last is None else channels_last
        saved = None if tree is None else tree["model"]
        state = assemble(run, seed, fabric, root=root, channels_last=nhwc, saved=saved)
        if compiled:
            state.networks.compile()  # type: ignore[attr-defined]  # a single network
        return state

    settings = {"run": run.settings(), "seed": seed}
    try:
        state, found = _trained(make, run, settings, Single.parts, logs=logs, **options)
    finally:
        if compiled:
            torch.compiler.reset()  # torch compiles eight networks with masks, and runs any more as they are
    error = state.errors.get(0)
    return found[0] | ({} if error is None else {"warnings": str(error)})


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

    Each has the start, the masks and the order of samples that it would have alone. A network whose loss or gradient
    is not finite stops where it is; the bits of the others do not depend on it. The metric ``together`` says how many
    shared the time, and ``warnings`` what the library said of a start. Where a start could not be made, the error
    stands in the place of the metrics.

    Args:
        pairs: descriptions and seeds, which differ in starts, masks and seeds alone (see `stack_key`).
        workers: processes that make starts, only with a folder; None is one for each processor where there is a GPU,
            which would wait for them, and one elsewhere.
        fused: compute with our own GPU kernels; None does so where they fit and are faster.
        options: see `_trained`; the folder `out` holds the starts too. `device` as `launch` takes it.

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

    settings = {str(place): {"run": run.settings(), "seed": seed} for place, (run, seed) in enumerate(pairs)}
    given = {"checkpoint_seconds": 120.0, "progress": progress, **options}
    state, found = _trained(make, pairs[0][0], settings, Stack.parts, **given)
    starts = state.networks.starts  # type: ignore[attr-defined]  # of a stack
    together = sum(start.problem is None for start in starts)
    rows: list[Metrics | Exception] = []
    for place, (start, metrics) in enumerate(zip(starts, found, strict=True)):
        error = [str(state.errors[place])] if place in state.errors else []
        said = {"warnings": "; ".join(dict.fromkeys([*start.warnings, *error]))} if start.warnings or error else {}
        made = {"together": together, **metrics, **said}
        rows.append(made if start.problem is None else RuntimeError(start.problem))
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
        out: the folder of checkpoints and logs; None keeps nothing.
        resume: go on from the last checkpoint in `out` (from the start where there is none).
        checkpoint_steps, checkpoint_seconds: see `Saving`.
        progress: called with the fraction done and a few words, twice a second at most.
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
        kept: list[Callback] = [] if progress is None else [Reports(progress)]
        if folder is not None:
            kept += [maker(folder, settings) for maker in makers]
            kept.append(Saving(folder, settings, every=checkpoint_steps, seconds=checkpoint_seconds))
        fit(state, [*callbacks, *kept], graph=graph, deterministic=deterministic)
        with arithmetic(run.recipe.precision, deterministic=deterministic):
            return state, _metrics(state, before)


def _metrics(state: State, before: float) -> list[Metrics]:
    """Return the metrics of each network; `before` are the seconds of earlier parts of the run."""
    tested = evaluate(state, state.test) if state.is_alive() else [{}] * state.networks.count
    found = []
    for place, (figures, density) in enumerate(zip(tested, state.networks.densities(), strict=True)):
        history = state.histories[place]
        times = {"epochs": len(history), "train_seconds": state.seconds, "resumed_seconds": before}
        outcome: Metrics
        if place in state.errors:
            outcome = {"diverged": True, "diverged_epoch": state.errors[place].epoch + 1}
        else:
            sizes = {"density": density, "parameters": state.networks.parameters}
            outcome = {"diverged": False, **{f"test_{name}": value for name, value in figures.items()}, **sizes}
        found.append({**outcome, **times, "curves": _curves(history)})
    return found


def _curves(history: Sequence[dict[str, float]]) -> dict[str, list[float]]:
    """Return the metrics of epochs as a list for each."""
    names = [name for name in history[0] if name != "epoch"] if history else []
    return {name: [epoch[name] for epoch in history] for name in names}


@contextmanager
def _folder(out: Path | str | None, fabric: "Fabric", resume: bool) -> Iterator[Path | None]:
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
