"""Trainings of one shape as one run, and the metrics that each would have given alone."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from orthosparse.lab.experiments._experiment import Experiment, Progress
from orthosparse.lab.experiments.training import Training


def group_of(experiment: Experiment) -> str | None:
    """Return what trainings that can run together have in common; None for what runs by itself.

    Example:
        >>> sparse, dense = Training("resnet32", "cifar10", 0.1), Training("resnet32", "cifar10")
        >>> group_of(sparse) == group_of(dense), group_of(Training("vgg16c", "cifar10"))
        (True, None)
    """
    from orthosparse.lab.training.ensemble import shape_of, why_not

    if not isinstance(experiment, Training):
        return None
    config = experiment.config()
    return shape_of(config) if why_not(config) is None else None


def run_together(
    trainings: Sequence[tuple[Training, int]],
    *,
    root: Path | str | None = None,
    out: Path | None = None,
    device: str = "auto",
    progress: Progress | None = None,
) -> list[tuple[dict[str, Any] | Exception, list[str]]]:
    """Return, for each training and its seed, the metrics as `Training.run` gives them, and what the library warned of.

    The metric ``together`` says with how many a training shared its time; the curves have ``test_accuracy`` too. An
    error in a start takes the place of the metrics.

    Args:
        out: a folder for all of them; what an interrupted run left there is taken up.
    """
    from orthosparse.lab.training.ensemble import train_ensemble

    members = [(training.config(), seed) for training, seed in trainings]
    ended = train_ensemble(
        members,
        root=root,
        out=out,
        resume=out is not None,
        curve=True,
        progress=progress,
        device=device,
    )
    return [(_metrics(each), each.warnings) for each in ended]


def _metrics(ended: Any) -> dict[str, Any] | Exception:
    from orthosparse.lab.experiments._watcher import Watcher
    from orthosparse.lab.training import NonFiniteError

    watcher = Watcher(None)
    watcher.history, watcher.seconds, watcher.before = ended.epochs, ended.seconds, ended.before
    measured = {"together": ended.together, **watcher.measured()}
    if isinstance(ended.error, NonFiniteError):
        return {"diverged": True, "diverged_epoch": ended.error.epoch + 1, **measured}
    if ended.error is not None:
        error: Exception = ended.error
        return error
    tested = {name: ended.row[name] for name in ("test_accuracy", "test_loss", "density", "parameters")}
    return {"diverged": False, **tested, **measured}
