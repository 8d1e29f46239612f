"""Writes checkpoints while a network trains, and finds the one to go on from."""

from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Any

from lightning_fabric import Fabric

from orthosparse.lab.signals import Interrupt
from orthosparse.lab.training.callbacks import Callback, Verify
from orthosparse.lab.training.checkpoint import load, save, tidy
from orthosparse.lab.training.snapshot import PARTS, take
from orthosparse.lab.training.state import State
from orthosparse.lab.training.trees import copied

_NAMED = 3  # differences between two runs that a message names
_WIDE = 40  # characters of a setting that it shows


class Saving(Callback):
    """Saves the state in `folder`: every so many steps, when the last checkpoint is old, and before an interrupt.

    Ctrl-C is answered when the step has ended and is saved (on many ranks at once, without).

    Args:
        settings: what the run was asked for, in plain values; a resumed run must have been asked for the same.
        every: steps between checkpoints; 0 for none within an epoch.
        seconds: the age at which a checkpoint is replaced: by the clock of rank 0, so on many ranks at the end of an
            epoch only. The last epoch always ends with one.
    """

    def __init__(self, folder: Path, settings: dict[str, Any], *, every: int = 0, seconds: float = 60.0) -> None:
        self.folder, self.settings, self.every, self.seconds = folder, settings, every, seconds
        self._last = monotonic()
        self._interrupt = Interrupt()

    def on_start(self, state: State) -> None:
        """Listen for an interrupt; ranks that hear it at different steps could not save together."""
        if state.fabric.world_size == 1:
            self._interrupt.install()

    def on_step(self, state: State, verify: Verify) -> None:
        """Save if it is time; a state that is not finite is never saved."""
        old = state.fabric.world_size == 1 and monotonic() - self._last >= self.seconds
        if old or self._interrupt.requested or (self.every and state.steps_done % self.every == 0):
            verify()
            self._save(state)
        self._raise_if_asked()

    def on_epoch(self, state: State, metrics: dict[str, float]) -> None:
        """Save if the last checkpoint is old, or if this was the last epoch."""
        del metrics  # part of the state
        due = monotonic() - self._last >= self.seconds or state.epoch == state.recipe.epochs
        if state.fabric.broadcast(due or self._interrupt.requested):  # rank 0's clock decides for all
            self._save(state)
        self._raise_if_asked()

    def on_end(self, state: State) -> None:
        """Leave interrupts to others again."""
        del state  # saved already
        self._interrupt.remove()

    def _raise_if_asked(self) -> None:
        if self._interrupt.requested:
            raise KeyboardInterrupt

    def _save(self, state: State) -> None:
        tree = copied({"settings": self.settings, **take(state)}, "cpu")  # by every rank: shards are gathered
        if state.fabric.is_global_zero:
            save(self.folder, state.steps_done, tree)
        self._last = monotonic()


def check_pace(checkpoint_steps: int, checkpoint_seconds: float) -> None:
    """Raise a ValueError where steps or seconds between checkpoints are no such thing."""
    for name, value in (("checkpoint_steps", checkpoint_steps), ("checkpoint_seconds", checkpoint_seconds)):
        if not value >= 0:  # NaN too
            raise ValueError(f"{name}: expected 0 or more; got {value!r}")


def last_checkpoint(fabric: Fabric, folder: Path) -> Any | None:
    """Return the tree of the newest whole checkpoint in `folder` to every rank, or None where there is none.

    Raises:
        ValueError: all of them are damaged.
    """
    tree = None
    if fabric.is_global_zero:
        tidy(folder)
        tree = load(folder, PARTS)  # sets damaged ones aside, before the others look
    fabric.barrier()
    return tree if fabric.is_global_zero else load(folder, PARTS)


def check_same(saved: dict[str, Any], asked: dict[str, Any]) -> None:
    """Raise a ValueError that names the settings in which two runs differ: the first few, and how many more there are.

    Example:
        >>> check_same({"recipe": {"lr": 0.1}, "seed": 1}, {"recipe": {"lr": 0.2}, "seed": 1})
        Traceback (most recent call last):
        ...
        ValueError: resume: expected the settings of the checkpoint; they differ in recipe.lr (0.1 there, 0.2 here)
    """
    found = list(_differences(saved, asked, ""))
    if found:
        more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
        listed = ", ".join(found[:_NAMED]) + more
        raise ValueError(f"resume: expected the settings of the checkpoint; they differ in {listed}")


def _differences(there: Any, here: Any, path: str) -> Iterator[str]:
    """Yield a phrase for each setting that differs; a group that one side lacks is one."""
    if isinstance(there, dict) and isinstance(here, dict):
        for key in {**there, **here}:
            yield from _differences(there.get(key), here.get(key), f"{path}.{key}" if path else str(key))
    elif isinstance(there, dict) and here is None:
        yield f"{path} (only there)"
    elif isinstance(here, dict) and there is None:
        yield f"{path} (only here)"
    elif _listed(there) != _listed(here):
        yield f"{path} ({_shown(there)} there, {_shown(here)} here)"


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value  # what JSON makes of it


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _WIDE else f"{text[:_WIDE]}..."
