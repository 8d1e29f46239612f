"""How far training has come: a bar with loss, accuracy, images a second and the time left, or calls of a function."""

from collections.abc import Callable
from time import monotonic
from typing import Any

from orthosparse.lab.training.callbacks import Callback
from orthosparse.lab.training.state import State

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
