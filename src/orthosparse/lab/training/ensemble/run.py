"""Many runs of one shape at once, from settings to result rows, killed and resumed as often as it happens."""

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import torch
from lightning_fabric import Fabric

from orthosparse.lab.data import Dataset, load
from orthosparse.lab.files import locked
from orthosparse.lab.training import checkpoint
from orthosparse.lab.training.devices import arithmetic, launch
from orthosparse.lab.training.ensemble.ahead import make_ahead
from orthosparse.lab.training.ensemble.alike import check_alike
from orthosparse.lab.training.ensemble.loop import Look, fit
from orthosparse.lab.training.ensemble.making import Members, ensemble_of
from orthosparse.lab.training.ensemble.measures import error_of, evaluate
from orthosparse.lab.training.ensemble.moving import Moving, moving_places
from orthosparse.lab.training.ensemble.saving import PARTS, Saving, put_back
from orthosparse.lab.training.ensemble.starts import Start, start_of
from orthosparse.lab.training.ensemble.state import Ensemble
from orthosparse.lab.training.ensemble.step import Step
from orthosparse.lab.training.ensemble.ways import Ways
from orthosparse.lab.training.rows import curves_of
from orthosparse.lab.training.saving import check_pace, check_same

Progress = Callable[[float, str], None]
_log = logging.getLogger(__name__)
_PAUSE = 0.5  # seconds between two reports


def train_many(
    members: Members,
    *,
    root: Path | str | None = None,
    out: Path | str | None = None,
    resume: bool = False,
    checkpoint_steps: int = 0,
    checkpoint_seconds: float = 120.0,
    ways: Ways | None = None,
    graph: bool | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
    device: str = "auto",
) -> list[dict[str, Any] | Exception]:
    """Train networks of one shape, data set and recipe together, and return the metrics of each, as `train` does.

    Each has the start, the masks and the order of samples that it would have alone. A member whose loss or gradient is
    not finite stops where it is; the bits of the others do not depend on it. The curves have ``test_accuracy`` too, the
    metric ``together`` says how many shared the time, and ``warnings`` what the library said of a start. Where a start
    could not be made, the error stands in the place of the metrics.

    Args:
        members: configurations and seeds, which differ in starts, masks and seeds alone (see `alike`).
        out: the folder of starts, checkpoints and results; None keeps nothing.
        resume: go on from what is in `out`.
        checkpoint_steps, checkpoint_seconds: see `Saving`.
        ways: how the numbers are computed.
        graph: see `Step`.
        workers: processes that make starts ahead, see `make_ahead`, only with a folder; None is one for each processor
            where there is a GPU, which would wait for them, and none elsewhere.
        progress: told how far it is.
        device: auto, cpu, cuda or cuda:INDEX.

    Raises:
        ValueError: members that cannot train together; a folder that holds another run, or that another process uses.

    Example:
        >>> from orthosparse.lab.training import Recipe, Run
        >>> recipe = Recipe(epochs=1, lr=0.1, dense_init="orthogonal")
        >>> sparse, dense = (Run("mlp", "digits", recipe, density=density) for density in (0.3, 1.0))
        >>> [round(each["density"], 2) for each in train_many([(sparse, 1), (sparse, 2), (dense, 1)], device="cpu")]
        [0.3, 0.3, 1.0]
    """
    check_pace(checkpoint_steps, checkpoint_seconds)
    check_alike([config for config, _ in members])
    config, ways = members[0][0], ways or Ways()
    settings: dict[str, Any] = {
        str(place): {"run": own.settings(), "seed": seed} for place, (own, seed) in enumerate(members)
    }
    with _folder(out, resume) as folder:
        tree = None if folder is None else _last_checkpoint(folder, settings)
        fabric = launch(precision=config.recipe.precision, device=device)
        if fabric.world_size > 1:
            raise ValueError(f"members: expected one process for all of them; got {fabric.world_size}")
        data = load(config.data, root, device=fabric.device, validation=config.validation)
        places = [None if folder is None else folder / "starts" / f"{place:03d}" for place in range(len(members))]
        tell = progress or _silent
        _make_ahead(members, places, root, fabric.device, workers, tell)
        ensemble, starts = ensemble_of(members, _made(members, places, data, fabric, tell), data, fabric.device, ways)
        if moving_places(ensemble):
            ensemble.moving = Moving(ensemble, members, data, fabric)
        if tree is not None:
            put_back(ensemble, tree)
        del tree  # as large as the ensemble
        looks: list[Look] = [_Teller(progress).look] if progress is not None else []
        saving: Any = nullcontext()
        if folder is not None:
            saving = Saving(folder, settings, every=checkpoint_steps, seconds=checkpoint_seconds)
            looks.append(saving)
        before = ensemble.seconds
        with saving, arithmetic(config.recipe.precision):
            settle = partial(_settle, members=members, data=data, fabric=fabric)
            fit(ensemble, Step(ensemble, ways, graph=graph), looks=looks, settle=settle)
            tested = evaluate(ensemble, ensemble.test)
        together = sum(start.problem is None for start in starts)
        return [_metrics(ensemble, place, start, tested[place], before, together) for place, start in enumerate(starts)]


def _metrics(
    ensemble: Ensemble, place: int, start: Start, tested: dict[str, float], before: float, together: int
) -> dict[str, Any] | Exception:
    if start.problem is not None:
        return RuntimeError(start.problem)
    history = ensemble.histories[place]
    times = {"epochs": len(history), "train_seconds": ensemble.seconds, "resumed_seconds": before}
    shared: dict[str, Any] = {"together": together, **times, "curves": curves_of(history)}
    messages = [*start.warnings, *([str(ensemble.errors[place])] if place in ensemble.errors else [])]
    if messages:
        shared["warnings"] = "; ".join(dict.fromkeys(messages))
    if place in ensemble.errors:
        return {"diverged": True, "diverged_epoch": ensemble.errors[place].epoch + 1, **shared}
    figures = {"test_accuracy": tested["accuracy"], "test_loss": tested["loss"]}
    return {"diverged": False, **figures, "density": start.density, "parameters": start.parameters, **shared}


@contextmanager
def _folder(out: Path | str | None, resume: bool) -> Iterator[Path | None]:
    """Yield the folder of the run, made if it is not there, and locked.

    Raises:
        ValueError: another process uses it; it holds a run, and this one is not to resume it.
    """
    if out is None:
        yield None
        return
    folder = Path(out)
    with locked(folder):
        if not resume and checkpoint.has_checkpoint(folder):
            raise ValueError(f"out: {folder} holds a run already; resume it or choose another folder")
        yield folder


def _last_checkpoint(folder: Path, settings: dict[str, Any]) -> dict[str, Any] | None:
    """Return the last checkpoint in `folder`, or None; that it is of other members is said before starts are made."""
    checkpoint.tidy(folder)
    tree: dict[str, Any] | None = checkpoint.load(folder, PARTS)
    if tree is not None:
        check_same(tree["settings"], settings)
    return tree


def _make_ahead(
    members: Members,
    places: Sequence[Path | None],
    root: Path | str | None,
    device: torch.device,
    workers: int | None,
    progress: Progress,
) -> None:
    """Make starts in several processes, where they are kept in folders, and by default where a GPU would wait."""
    if workers is None:
        workers = os.cpu_count() or 1 if device.type == "cuda" else 1
    folders = [place for place in places if place is not None]
    if folders and workers > 1:
        progress(0.0, f"starts in {workers} processes")
        make_ahead(members, folders, root, device, workers)


def _made(
    members: Members, places: Sequence[Path | None], data: Dataset, fabric: Fabric, progress: Progress
) -> Iterator[Start]:
    """Yield the start of every member, one at a time: together they need as much memory as the ensemble."""
    for number, ((config, seed), place) in enumerate(zip(members, places, strict=True), start=1):
        progress(0.0, f"start {number} of {len(members)}")
        start = start_of(config, seed, data, fabric.device, place)
        if start.problem is not None:
            label = " ".join(filter(None, (config.model, config.distribution, config.scheme)))
            _log.warning("%s, seed %d, has no start and will not be trained: %s", label, seed, start.problem)
        yield start


def _settle(ensemble: Ensemble, *, members: Members, data: Dataset, fabric: Fabric) -> None:
    """Find out why members have stopped."""
    stopped = ensemble.records.stopped.tolist()
    for place, (_, seed) in enumerate(members):
        if stopped[place] >= 0 and place not in ensemble.errors:
            ensemble.errors[place] = error_of(ensemble, place, seed, data, fabric)


def _silent(fraction: float, words: str) -> None:
    """Tell nobody."""


class _Teller:
    """Tells how far an ensemble is, twice a second at most."""

    def __init__(self, progress: Progress) -> None:
        self._progress, self._told = progress, -_PAUSE

    def look(self, ensemble: Ensemble) -> None:
        if monotonic() - self._told >= _PAUSE:
            self._told = monotonic()
            steps, epochs = len(ensemble.feed) * ensemble.recipe.epochs, ensemble.recipe.epochs
            words = f"epoch {min(ensemble.epoch + 1, epochs)} of {epochs}, {len(ensemble.configs)} together"
            self._progress(ensemble.steps_done / steps, words)
