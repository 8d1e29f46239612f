"""Metrics of every epoch, written where people look for them: CSV, TensorBoard, Weights & Biases."""

import csv
import io
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from orthosparse.files import write_atomically
from orthosparse.lab.training.callbacks import Callback
from orthosparse.lab.training.state import State


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
