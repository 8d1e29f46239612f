"""Writes checkpoints while networks train, and goes on from one."""

from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from torch import Tensor

from orthosparse.lab.signals import Interrupt
from orthosparse.lab.training.callbacks import Callback
from orthosparse.lab.training.checkpoint import Parts, load, save, tidy
from orthosparse.lab.training.state import NonFiniteError, State
from orthosparse.registry import listed

if TYPE_CHECKING:
    from lightning_fabric import Fabric

_NAMED = 3  # differences between two runs that a message names
_WIDE = 40  # characters of a setting that it shows
_SHARE = 50  # so many times as long as writing a checkpoint takes, none is written by age

# What the tree of a run has beside the state of its networks, and its types.
_PARTS: Parts = {
    "settings": dict,
    "epoch": int,
    "step": int,
    "seconds": (int, float),
    "values": Tensor,
    "alive": Tensor,
    "stopped": Tensor,
    "histories": list,
    "errors": dict,
}


class Saving(Callback):
    """Saves the state in `folder`: every so many steps, when the last checkpoint is old, and before an interrupt.

    Ctrl-C is answered when the step has ended and is saved (on many ranks at once, without).

    Args:
        settings: what the run was asked for, in plain values; a resumed run must have been asked for the same.
        every: steps between checkpoints; 0 for none by count.
        seconds: the age at which a checkpoint is replaced: by the clock of rank 0, so on many ranks at the end of an
            epoch only; later where writing one takes so long that it would cost more than a fiftieth of the time. The
            last epoch always ends with one.
    """

    def __init__(self, folder: Path, settings: dict[str, Any], *, every: int = 0, seconds: float = 60.0) -> None:
        self.folder, self.settings, self.every, self.seconds = folder, settings, every, seconds
        self._last, self._taken = monotonic(), 0.0
        self._interrupt = Interrupt()

    def on_start(self, state: State) -> None:
        """Listen for an interrupt; ranks that hear it at different steps could not save together."""
        if state.fabric.world_size == 1:
            self._interrupt.install()

    def on_step(self, state: State) -> None:
        """Save if it is time; the last step of an epoch is no place to stop at, as its metrics are not there yet."""
        if state.step == len(state.loader):
            return
        alone = state.fabric.world_size == 1
        if alone:
            self._interrupt.reinstall()  # kernels are compiled in the first steps, by libraries that take signals
        if self._is_counted(state) or (alone and (self._is_old() or self._interrupt.requested)):
            self._save(state)
        self._raise_if_requested()

    def on_epoch(self, state: State) -> None:
        """Save if it is time, or if this was the last epoch."""
        due = self._is_old() or self._interrupt.requested or state.epoch == state.recipe.epochs
        if state.fabric.broadcast(due or self._is_counted(state)):  # rank 0's clock decides for all
            self._save(state)
        self._raise_if_requested()

    def on_end(self, state: State) -> None:
        """Leave interrupts to others again."""
        del state  # saved already
        self._interrupt.remove()

    def _is_counted(self, state: State) -> bool:
        return bool(self.every) and state.steps_done % self.every == 0

    def _is_old(self) -> bool:
        return monotonic() - self._last >= max(self.seconds, _SHARE * self._taken)

    def _raise_if_requested(self) -> None:
        if self._interrupt.requested:
            raise KeyboardInterrupt

    def _save(self, state: State) -> None:
        if not state.is_alive():
            return  # the last good checkpoint stays
        begin = monotonic()
        tree = {"settings": self.settings, **tree_of(state)}  # by every rank: shards are gathered
        if state.fabric.is_global_zero:
            save(self.folder, state.steps_done, tree)
        self._last = monotonic()
        self._taken = self._last - begin


def tree_of(state: State) -> dict[str, Any]:
    """Return everything that is needed to go on from here, copied to the CPU. Every rank must call it."""
    records = state.records
    return {
        **state.networks.state_dict(),
        "epoch": state.epoch,
        "step": state.step,
        "seconds": state.seconds,
        **{name: getattr(records, name).to("cpu", copy=True) for name in ("values", "alive", "stopped")},
        "histories": [list(history) for history in state.histories],
        "errors": {place: {"message": str(error), **vars(error)} for place, error in state.errors.items()},
    }


def restore(state: State, tree: dict[str, Any]) -> None:
    """Give a run the state that `tree_of` returned.

    Raises:
        ValueError: it is that of no such run.
    """
    try:
        _restore(state, tree)
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise ValueError(f"checkpoint: expected the state of this run; got another ({error!r})") from error


def _restore(state: State, tree: dict[str, Any]) -> None:
    state.networks.load_state_dict(tree)
    state.epoch, state.step, state.seconds = tree["epoch"], tree["step"], tree["seconds"]
    state.histories = [list(history) for history in tree["histories"]]
    state.errors = {place: NonFiniteError(**saved) for place, saved in tree["errors"].items()}
    for name in ("values", "alive", "stopped"):
        getattr(state.records, name).copy_(tree[name])
    state.records.clock.fill_(state.steps_done)


def check_pace(checkpoint_steps: int, checkpoint_seconds: float) -> None:
    """Raise a ValueError where steps or seconds between checkpoints are no such thing."""
    for name, value in (("checkpoint_steps", checkpoint_steps), ("checkpoint_seconds", checkpoint_seconds)):
        if not value >= 0:  # NaN too
            raise ValueError(f"{name}: expected 0 or more; got {value!r}")


def last_checkpoint(fabric: "Fabric", folder: Path, parts: Parts, settings: dict[str, Any]) -> Any | None:
    """Return the tree of the newest whole checkpoint in `folder` to every rank, or None where there is none.

    Args:
        parts: of the networks' own state.

    Raises:
        ValueError: all of them are damaged, or it is that of another kind of run, or of one with other settings.
    """
    tree = None
    if fabric.is_global_zero:
        tidy(folder)
        tree = load(folder, _PARTS, parts)  # sets damaged ones aside, before the others look
    fabric.barrier()
    tree = tree if fabric.is_global_zero else load(folder, _PARTS, parts)
    if tree is not None:
        check_same(tree["settings"], settings)
    return tree


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
        raise ValueError(f"resume: expected the settings of the checkpoint; they differ in {listed(found, _NAMED)}")


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
