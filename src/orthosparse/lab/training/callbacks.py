"""What may look on while a network trains."""

from collections.abc import Callable

from torch import Tensor

from orthosparse.lab.training.state import State

Verify = Callable[[], Tensor]


class Callback:
    """Called at the turns of the loop; a subclass says what it does at those that concern it.

    Every rank calls every callback. None of them may wait for the device at every step.
    """

    def on_start(self, state: State) -> None:
        """Before the first step of a run, or of a resumed one."""

    def on_epoch_start(self, state: State) -> None:
        """Before an epoch, or what is left of it; the weights are those the epoch starts with."""

    def on_step(self, state: State, verify: Verify) -> None:
        """After a step; `verify` reads the epoch's tally (and waits for the device) or raises if it is not finite."""

    def on_epoch(self, state: State, metrics: dict[str, float]) -> None:
        """After an epoch; `state` stands at the start of the next one."""

    def on_end(self, state: State) -> None:
        """After the last epoch, or when an error ends the run early."""
