"""Looks on while a network trains: how far it is, what it took, and the curves of its epochs."""

from time import monotonic
from typing import Any

from orthosparse.lab.experiments._experiment import Progress
from orthosparse.lab.training import Callback, State

_PAUSE = 0.5  # seconds between two reports


class Watcher(Callback):
    """Reports progress, and keeps the history of the epochs also when the run ends early."""

    def __init__(self, progress: Progress | None) -> None:
        self.progress = progress
        self.history: list[dict[str, float]] = []
        self.before = self.seconds = 0.0
        self._reported = -_PAUSE

    def on_start(self, state: State) -> None:
        """Note what earlier parts of a resumed run took."""
        self.before, self.history = state.seconds, state.history

    def on_step(self, state: State, verify: Any) -> None:
        """Report, twice a second at most."""
        del verify  # it would wait for the device
        if self.progress is not None and monotonic() - self._reported >= _PAUSE:
            self._reported = monotonic()
            steps = len(state.loader) * state.recipe.epochs
            self.progress(state.steps_done / steps, f"epoch {state.epoch + 1} of {state.recipe.epochs}")

    def on_end(self, state: State) -> None:
        """Keep what there is."""
        self.history, self.seconds = state.history, state.seconds

    def measured(self, row: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the times and the curves, of a finished run's row where the training itself was not seen."""
        history = self.history if row is None else row["epochs"]
        names = [name for name in history[0] if name != "epoch"] if history else []
        return {
            "epochs": len(history),
            "train_seconds": self.seconds if row is None else row["seconds"],
            "resumed_seconds": self.before,
            "curves": {name: [epoch[name] for epoch in history] for name in names},
        }
