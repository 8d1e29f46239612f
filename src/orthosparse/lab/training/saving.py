"""Writes checkpoints during training, and restores runs from them."""

from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from torch import Tensor

from orthosparse.lab.process import Interrupt
from orthosparse.lab.training.callbacks import Callback
from orthosparse.lab.training.checkpoint import Parts, load, save, tidy
from orthosparse.lab.training.state import NonFiniteError, State
from orthosparse.registry import listed

if TYPE_CHECKING:
    from lightning_fabric import Fabric

_NAMED = 3  # differences between two runs that are named in a message
_WIDE = 40  # characters of a setting that are shown in it
_SHARE = 50  # checkpoints by age are at least this many times their writing time apart

# The tree of a run besides the state of its networks, with types.
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

    Ctrl-C interrupts the run after the current step, which is saved (with several ranks, at once and without saving).

    Args:
        settings: the settings of the run in plain values; a resumed run must have the same.
        every: steps between checkpoints; 0 for none by count.
        seconds: the age at which a checkpoint is replaced, by the clock of rank 0; with several ranks only at the end
            of an epoch. The interval is longer if writing would take more than a fiftieth of the time. The last epoch
            always ends with a checkpoint.
    """

    def __init__(self, folder: Path, settings: dict[str, Any], *, every: int = 0, seconds: float = 60.0) -> None:
        self.folder, self.settings, self.every, self.seconds = folder, settings, every, seconds
        self._last, self._taken = monotonic(), 0.0
        self._interrupt = Interrupt()

    def on_start(self, state: State) -> None:
        """Handle interrupts; not with several ranks, which would receive them at different steps."""
        if state.fabric.world_size == 1:
            self._interrupt.install()

    def on_step(self, state: State) -> None:
        """Save if it is time, except after the last step of an epoch, whose metrics are not computed yet."""
        if state.step == len(state.loader):
            return
        alone = state.fabric.world_size == 1
        if alone:
            self._interrupt.reinstall()  # compilers of kernels replace signal handlers in the first steps
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
        """Restore the handler of interrupts."""
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
        tree = {"settings": self.settings, **tree_of(state)}  # on every rank, as shards are gathered
        if state.fabric.is_global_zero:
            save(self.folder, state.steps_done, tree)
        self._last = monotonic()
        self._taken = self._last - begin


def tree_of(state: State) -> dict[str, Any]:
    """Return everything that a resumed run needs, copied to the CPU. Every rank must call it."""
    records = state.records
    return {
        **state.networks.state_dict(),
        "epoch": state.epoch,
        "step": state.step,
        "seconds": state.seconds,
        **{name: getattr(records, name).to("cpu", copy=True) for name in ("values", "alive", "stopped")},
        "histories": [list(history) for history in state.histories],
        "errors": {index: {"message": str(error), **vars(error)} for index, error in state.errors.items()},
    }


def restore(state: State, tree: dict[str, Any]) -> None:
    """Restore the state that `tree_of` returned.

    Raises:
        ValueError: it is not the state of such a run.
    """
    try:
        _restore(state, tree)
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise ValueError(f"checkpoint: expected the state of this run; got another ({error!r})") from error


def _restore(state: State, tree: dict[str, Any]) -> None:
    state.networks.load_state_dict(tree)
    state.epoch, state.step, state.seconds = tree["epoch"], tree["step"], tree["seconds"]
    state.histories = [list(history) for history in tree["histories"]]
    state.errors = {index: NonFiniteError(**saved) for index, saved in tree["errors"].items()}
    for name in ("values", "alive", "stopped"):
        getattr(state.records, name).copy_(tree[name])
    state.records.clock.fill_(state.steps_done)


def check_pace(checkpoint_steps: int, checkpoint_seconds: float) -> None:
    """Raise a ValueError if steps or seconds between checkpoints are negative or NaN."""
    for name, value in (("checkpoint_steps", checkpoint_steps), ("checkpoint_seconds", checkpoint_seconds)):
        if not value >= 0:  # NaN too
            raise ValueError(f"{name}: expected 0 or more; got {value!r}")


def last_checkpoint(fabric: "Fabric", folder: Path, parts: Parts, settings: dict[str, Any]) -> Any | None:
    """Return the tree of the newest whole checkpoint in `folder` on every rank, or None if there is none.

    Args:
        parts: of the networks' own state.

    Raises:
        ValueError: all of them are damaged, or it is of another kind of run, or of one with other settings.
    """
    tree = None
    if fabric.is_global_zero:
        tidy(folder)
        tree = load(folder, _PARTS, parts)  # renames damaged ones, before other ranks load
    fabric.barrier()
    tree = tree if fabric.is_global_zero else load(folder, _PARTS, parts)
    if tree is not None:
        check_same(tree["settings"], settings)
    return tree


def check_same(saved: dict[str, Any], requested: dict[str, Any]) -> None:
    """Raise a ValueError that names the settings in which two runs differ: the first few, and the number of others.

    Example:
        >>> check_same({"recipe": {"lr": 0.1}, "seed": 1}, {"recipe": {"lr": 0.2}, "seed": 1})
        Traceback (most recent call last):
        ...
        ValueError: resume: expected the settings of the checkpoint; they differ in recipe.lr (0.1 there, 0.2 here)
    """
    differences = list(_differences(saved, requested, ""))
    if differences:
        named = listed(differences, _NAMED)
        raise ValueError(f"resume: expected the settings of the checkpoint; they differ in {named}")


def _differences(saved: Any, requested: Any, path: str) -> Iterator[str]:
    """Yield a phrase for each setting that differs; a group that one side lacks is a single one."""
    if isinstance(saved, dict) and isinstance(requested, dict):
        for key in {**saved, **requested}:
            yield from _differences(saved.get(key), requested.get(key), f"{path}.{key}" if path else str(key))
    elif isinstance(saved, dict) and requested is None:
        yield f"{path} (only there)"
    elif isinstance(requested, dict) and saved is None:
        yield f"{path} (only here)"
    elif _listed(saved) != _listed(requested):
        yield f"{path} ({_shown(saved)} there, {_shown(requested)} here)"


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value  # as in JSON


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _WIDE else f"{text[:_WIDE]}..."
