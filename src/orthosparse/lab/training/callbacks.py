"""What looks on while networks train: a progress bar, calls of a function, and logs (CSV, TensorBoard, W&B)."""

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
    """Called by the loop at certain points; a subclass overrides those that concern it.

    Every rank calls every callback. None of them may wait for the device at every step.
    """

    def on_start(self, state: State) -> None:
        """Before the first step of a run, or of a resumed one."""

    def on_epoch_start(self, state: State) -> None:
        """Before an epoch, or what is left of it; the weights are those the epoch starts with."""

    def on_step(self, state: State) -> None:
        """After a step."""

    def on_epoch(self, state: State) -> None:
        """After an epoch; `state` stands at the start of the next one, and its histories end with this one."""

    def on_end(self, state: State) -> None:
        """After the last epoch, or when an error ends the run early."""


Report = Callable[[float, str], None]  # called with the fraction done, and a few words
_PAUSE = 0.5  # seconds between two reports


class Reports(Callback):
    """Calls a function with how far the run is, twice a second at most."""

    def __init__(self, report: Report) -> None:
        self._report, self._last = report, -_PAUSE

    def on_step(self, state: State) -> None:
        """Report if it is time."""
        if monotonic() - self._last >= _PAUSE:
            self._last = monotonic()
            epochs = state.recipe.epochs
            words = f"epoch {min(state.epoch + 1, epochs)} of {epochs}"
            words += f", {state.networks.count} together" if state.tests_epochs else ""
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
        self._looked = (0.0, 0)

    def on_start(self, state: State) -> None:
        """Begin where the run begins."""
        if not state.fabric.is_global_zero:
            return
        steps = len(state.loader) * state.recipe.epochs
        self._task = self._bar.add_task("", total=steps, completed=state.steps_done, epoch=state.epoch + 1, figures="")
        self._looked = (monotonic(), state.steps_done)
        if self.console.is_terminal:
            self._bar.start()

    def on_step(self, state: State) -> None:
        """Move on, twice a second; on one process the figures are the epoch's so far."""
        if self._task is None or monotonic() - self._looked[0] < _PAUSE or not self.console.is_terminal:
            return
        figures = ""
        if state.fabric.world_size == 1:
            loss, _, right = state.values().mean((1, 2)).tolist()
            figures = f"loss {loss:.4f}  accuracy {100 * right / state.loader.batch:.2f} %  "
        self._show(state, figures + f"{self._speed(state):,.0f} images/s")

    def on_epoch(self, state: State) -> None:
        """Write the epoch's figures down."""
        if self._task is None:
            return
        metrics = state.histories[0][-1]
        line = f"epoch {metrics['epoch']:3.0f}  loss {metrics['loss']:.4f}  accuracy {100 * metrics['accuracy']:.2f} %"
        if "validation_accuracy" in metrics:
            line += f"  validation {100 * metrics['validation_accuracy']:.2f} %"
        self.console.print(f"{line}  {self._speed(state):,.0f} images/s", highlight=False)
        self._show(state, "")

    def on_end(self, state: State) -> None:
        """Leave the terminal as it was."""
        del state  # nothing more to show
        if self._bar.live.is_started:
            self._bar.stop()

    def _speed(self, state: State) -> float:
        now, steps = monotonic(), state.steps_done
        since, before = self._looked
        self._looked = (now, steps)
        return float((steps - before) * state.loader.batch / max(now - since, 1e-9))

    def _show(self, state: State, figures: str) -> None:
        self._bar.update(self._task, completed=state.steps_done, epoch=state.epoch + 1, figures=figures)


class CsvLog(Callback):
    """Keeps ``metrics.csv``, one row an epoch: the history of the run, whole after every epoch."""

    def __init__(self, folder: Path, settings: dict[str, Any]) -> None:
        del settings  # the result row has them
        self.path = folder / "metrics.csv"

    def on_epoch(self, state: State) -> None:
        """Write all rows anew: a run that was resumed behind its log leaves no row twice."""
        if state.fabric.is_global_zero:
            text = io.StringIO()
            writer = csv.DictWriter(text, list(state.histories[0][-1]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(state.histories[0])
            write_atomically(self.path, text.getvalue().encode())


class TensorBoardLog(Callback):
    """Writes event files for TensorBoard into ``tensorboard``."""

    def __init__(self, folder: Path, settings: dict[str, Any]) -> None:
        del settings  # the result row has them
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ImportError("log: tensorboard is not installed; pip install 'orthosparse[lab]'") from error
        self._make = SummaryWriter
        self._folder = folder / "tensorboard"
        self._writer: Any = None

    def on_start(self, state: State) -> None:
        """Open a file; of an earlier part of the run, what lies behind its checkpoint is hidden."""
        if state.fabric.is_global_zero:
            self._writer = self._make(str(self._folder), purge_step=state.epoch + 1)

    def on_epoch(self, state: State) -> None:
        """Add a point to every curve."""
        metrics = state.histories[0][-1]
        if self._writer is not None:
            for name, value in metrics.items():
                self._writer.add_scalar(name, value, int(metrics["epoch"]))

    def on_end(self, state: State) -> None:
        """Close the file."""
        del state  # nothing more to write
        if self._writer is not None:
            self._writer.close()


class WandbLog(Callback):
    """Sends the metrics to Weights & Biases, as one run that resuming continues."""

    def __init__(self, folder: Path, settings: dict[str, Any]) -> None:
        try:
            self._wandb: Any = import_module("wandb")
        except ImportError as error:
            raise ImportError("log: wandb is not installed; pip install wandb, or leave --log wandb out") from error
        self._folder, self._settings = folder, settings
        self._run: Any = None

    def on_start(self, state: State) -> None:
        """Begin, or go on with, the run named after the folder."""
        if state.fabric.is_global_zero:
            identity = self._folder.resolve().name
            self._run = self._wandb.init(
                project="orthosparse", id=identity, resume="allow", dir=str(self._folder), config=self._settings
            )

    def on_epoch(self, state: State) -> None:
        """Send an epoch."""
        metrics = state.histories[0][-1]
        if self._run is not None:
            self._run.log(metrics, step=int(metrics["epoch"]))

    def on_end(self, state: State) -> None:
        """Finish."""
        del state  # nothing more to send
        if self._run is not None:
            self._run.finish()


LOGS: dict[str, Callable[[Path, dict[str, Any]], Callback]] = {
    "csv": CsvLog,
    "tensorboard": TensorBoardLog,
    "wandb": WandbLog,
}
