"""What may look on while networks train."""

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
