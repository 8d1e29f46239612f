"""Callbacks of the training loop: a progress bar, reports to a function, and logs (CSV, TensorBoard, W&B)."""

import csv
import io
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from time import monotonic
from typing import Any

from orthosparse.files import write_atomically
from orthosparse.lab.training.state import State


class Callback:
    """Called by the loop at certain points; a subclass overrides the methods it needs.

    Every rank calls every callback. None of them may wait for the device at every step.
    """

    def on_start(self, state: State) -> None:
        """Before the first step of a run or of a resumed run."""

    def on_epoch_start(self, state: State) -> None:
        """Before an epoch, or the rest of it in a resumed run."""

    def on_step(self, state: State) -> None:
        """After a step."""

    def on_epoch(self, state: State) -> None:
        """After an epoch; `state` is at the start of the next one, and its histories end with this one."""

    def on_end(self, state: State) -> None:
        """After the last epoch, or when an error ends the run early."""


Report = Callable[[float, str], None]  # called with the fraction done, and a few words
_PAUSE = 0.5  # seconds between two reports


class Reports(Callback):
    """Calls a function with the progress of the run, at most twice a second."""

    def __init__(self, report: Report) -> None:
        self._report, self._last = report, -_PAUSE

    def on_step(self, state: State) -> None:
        """Report if the last report is old enough."""
        if monotonic() - self._last >= _PAUSE:
            self._last = monotonic()
            epochs = state.recipe.epochs
            words = f"epoch {min(state.epoch + 1, epochs)} of {epochs}"
            words += f", {state.networks.count} together" if state.networks.count > 1 else ""
            self._report(state.steps_done / (len(state.loader) * epochs), words)


class Progress(Callback):
    """Draws one bar for the whole run on rank 0, on a terminal; elsewhere a line for each epoch.

    Args:
        console: a `rich.console.Console`; None is stderr.
    """

    def __init__(self, console: Any = None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self.console = console or Console(stderr=True)
        self._bar = Progress(
            TextColumn("epoch {task.fields[epoch]}"),
            BarColumn(),
            TextColumn("{task.fields[figures]}"),
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
        )
        self._task: Any = None
        self._last = (0.0, 0)  # the time and the number of steps of the last update

    def on_start(self, state: State) -> None:
        """Start the bar."""
        if not state.fabric.is_global_zero:
            return
        steps = len(state.loader) * state.recipe.epochs
        self._task = self._bar.add_task("", total=steps, completed=state.steps_done, epoch=state.epoch + 1, figures="")
        self._last = (monotonic(), state.steps_done)
        if self.console.is_terminal:
            self._bar.start()

    def on_step(self, state: State) -> None:
        """Update the bar, at most twice a second; on one process with the figures of the epoch so far."""
        if self._task is None or monotonic() - self._last[0] < _PAUSE or not self.console.is_terminal:
            return
        figures = ""
        if state.fabric.world_size == 1:
            losses, _, right = state.values()
            seen = _samples(state, state.steps_done - state.step)
            figures = f"loss {float(losses.mean()):.4f}  accuracy {100 * float(right.sum()) / seen:.2f} %  "
        since, before = self._last
        self._last = (monotonic(), state.steps_done)
        speed = _samples(state, before) / max(self._last[0] - since, 1e-9)
        self._show(state, f"{figures}{speed:,.0f} images/s")

    def on_epoch(self, state: State) -> None:
        """Print the figures of the epoch."""
        if self._task is None:
            return
        *earlier, metrics = state.histories[0]
        seconds = metrics["seconds"] - (earlier[-1]["seconds"] if earlier else 0.0)
        speed = _samples(state, state.steps_done - len(state.loader)) / max(seconds, 1e-9)
        line = f"epoch {metrics['epoch']:3.0f}  loss {metrics['loss']:.4f}  accuracy {100 * metrics['accuracy']:.2f} %"
        split = "validation" if "validation_accuracy" in metrics else "test"
        line += f"  {split} {100 * metrics[f'{split}_accuracy']:.2f} %"
        self.console.print(f"{line}  {speed:,.0f} images/s", highlight=False)
        self._show(state, "")
        self._last = (monotonic(), state.steps_done)

    def on_end(self, state: State) -> None:
        """Remove the bar from the terminal."""
        del state  # nothing is shown
        if self._bar.live.is_started:
            self._bar.stop()

    def _show(self, state: State, figures: str) -> None:
        self._bar.update(self._task, completed=state.steps_done, epoch=state.epoch + 1, figures=figures)


def _samples(state: State, since: int) -> int:
    """Return the training samples from step `since` of the run on; the last batch of an epoch may be a short one."""
    return sum(state.loader.count(step % len(state.loader)) for step in range(since, state.steps_done))


class CsvLog(Callback):
    """Writes ``metrics.csv``: the history of the run, one row an epoch, complete after every epoch."""

    def __init__(self, folder: Path, settings: dict[str, Any]) -> None:
        del settings  # they are in the result row
        self.path = folder / "metrics.csv"

    def on_epoch(self, state: State) -> None:
        """Write all rows again, so that a run resumed from before its last row has no row twice."""
        if state.fabric.is_global_zero:
            text = io.StringIO()
            writer = csv.DictWriter(text, list(state.histories[0][-1]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(state.histories[0])
            write_atomically(self.path, text.getvalue().encode())


class _Opened(Callback):
    """A log that rank 0 opens when a run starts, and closes at its end.

    Args:
        opened: called with the state, returns the log.
        write: called with the log and the metrics of an epoch.
        close: called with the log.
    """

    def __init__(
        self,
        opened: Callable[[State], Any],
        write: Callable[[Any, dict[str, float]], None],
        close: Callable[[Any], object],
    ) -> None:
        self._opened, self._write, self._close = opened, write, close
        self._log: Any = None

    def on_start(self, state: State) -> None:
        """Open the log."""
        self._log = self._opened(state) if state.fabric.is_global_zero else None

    def on_epoch(self, state: State) -> None:
        """Write the metrics of an epoch."""
        if self._log is not None:
            self._write(self._log, state.histories[0][-1])

    def on_end(self, state: State) -> None:
        """Close the log."""
        del state  # nothing more to write
        if self._log is not None:
            self._close(self._log)


def tensorboard_log(folder: Path, settings: dict[str, Any]) -> Callback:
    """Return a callback that writes event files for TensorBoard to the folder ``tensorboard``."""
    del settings  # they are in the result row
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ImportError("log: tensorboard is not installed; pip install 'orthosparse[lab]'") from error

    def opened(state: State) -> Any:
        # Hides the events of an earlier part of the run after its checkpoint.
        return SummaryWriter(str(folder / "tensorboard"), purge_step=state.epoch + 1)

    def write(log: Any, metrics: dict[str, float]) -> None:
        for name, value in metrics.items():
            log.add_scalar(name, value, int(metrics["epoch"]))

    return _Opened(opened, write, lambda log: log.close())


def wandb_log(folder: Path, settings: dict[str, Any]) -> Callback:
    """Return a callback that sends the metrics to Weights & Biases; a resumed run continues the run of its folder."""
    try:
        wandb: Any = import_module("wandb")
    except ImportError as error:
        raise ImportError("log: wandb is not installed; pip install wandb, or leave --log wandb out") from error
    options = {"project": "orthosparse", "id": folder.resolve().name, "resume": "allow", "dir": str(folder)}

    def write(run: Any, metrics: dict[str, float]) -> None:
        run.log(metrics, step=int(metrics["epoch"]))

    return _Opened(lambda _: wandb.init(**options, config=settings), write, lambda run: run.finish())


LOGS: dict[str, Callable[[Path, dict[str, Any]], Callback]] = {
    "csv": CsvLog,
    "tensorboard": tensorboard_log,
    "wandb": wandb_log,
}
