"""Checkpoints of an ensemble: what its masks let through, and where it stands; two generations, as for single runs."""

from pathlib import Path
from time import monotonic
from typing import Any

import torch
from torch import Tensor

from orthosparse.lab.signals import Interrupt
from orthosparse.lab.training.checkpoint import save
from orthosparse.lab.training.ensemble.slab import Leaf, Weights
from orthosparse.lab.training.ensemble.state import Ensemble
from orthosparse.lab.training.nonfinite import NonFiniteError

_SHARE = 50  # so many times as long as writing a checkpoint takes, none is written

# What the tree of an ensemble has, and its types; the settings are added by `Saving`.
PARTS: dict[str, type | tuple[type, ...]] = {
    "settings": dict,
    "slabs": list,
    "epoch": int,
    "step": int,
    "seconds": (int, float),
    "values": Tensor,
    "alive": Tensor,
    "stopped": Tensor,
    "histories": list,
    "errors": dict,
    "moving": list,
}


class Saving:
    """Saves an ensemble in `folder`: every so many steps, when the last checkpoint is old, and before an interrupt.

    Inside of its block Ctrl-C is answered when the step has ended and is saved.

    Args:
        settings: what the members were asked for, in plain values.
        every: steps between checkpoints; 0 for none by count.
        seconds: the age at which a checkpoint is replaced; later where writing one takes so long that it would cost
            more than a fiftieth of the time. The last epoch always ends with one.
    """

    def __init__(self, folder: Path, settings: dict[str, Any], *, every: int, seconds: float) -> None:
        self.folder, self.settings, self.every, self.seconds = folder, settings, every, seconds
        self._last, self._saved, self._taken = monotonic(), -1, 0.0
        self._interrupt = Interrupt()

    def __enter__(self) -> None:
        self._interrupt.install()

    def __exit__(self, *error: object) -> None:
        self._interrupt.remove()

    def __call__(self, ensemble: Ensemble) -> None:
        """Save if it is time."""
        self._interrupt.reinstall()  # kernels are compiled in the first steps
        began = monotonic()
        old = began - self._last >= max(self.seconds, _SHARE * self._taken)
        counted = self.every and ensemble.steps_done % self.every == 0
        ended = ensemble.epoch == ensemble.recipe.epochs
        # The last step of an epoch is no place to stop at: its metrics are not there yet.
        if ensemble.step == len(ensemble.feed):
            return
        due = old or counted or ended or self._interrupt.requested
        if due and ensemble.steps_done != self._saved:
            save(self.folder, ensemble.steps_done, {"settings": self.settings, **take(ensemble)})
            self._last, self._saved = monotonic(), ensemble.steps_done
            self._taken = self._last - began
        if self._interrupt.requested:
            raise KeyboardInterrupt


def take(ensemble: Ensemble) -> dict[str, Any]:
    """Return everything that is needed to go on from here, copied to the CPU; the masks are in the starts."""
    records = ensemble.records
    return {
        "slabs": [_taken(slab) for slab in ensemble.slabs],
        "epoch": ensemble.epoch,
        "step": ensemble.step,
        "seconds": ensemble.seconds,
        "values": _copied(records.values),
        "alive": _copied(records.alive),
        "stopped": _copied(records.stopped),
        "histories": ensemble.histories,
        "errors": {member: told_of(error) for member, error in ensemble.errors.items()},
        "moving": [] if ensemble.moving is None else ensemble.moving.take(),
    }


def put_back(ensemble: Ensemble, tree: dict[str, Any]) -> None:
    """Give an ensemble, which holds the masks of its members already, the state that `take` returned.

    Raises:
        ValueError: it is that of no such ensemble.
    """
    try:
        _put_back(ensemble, tree)
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise ValueError(f"checkpoint: expected the state of this ensemble; got another ({error!r})") from error


def _put_back(ensemble: Ensemble, tree: dict[str, Any]) -> None:
    if ensemble.moving is not None:
        ensemble.moving.put_back(tree["moving"])
    for slab, saved in zip(ensemble.slabs, tree["slabs"], strict=True):
        for name, leaf in slab.named.items():
            _unpack(leaf.value, leaf, saved[name])
            _unpack(leaf.momentum, leaf, saved[f"{name}_momentum"])
        for name, tensor in slab.buffers.items():
            tensor.copy_(saved[name])
    ensemble.epoch, ensemble.step, ensemble.seconds = tree["epoch"], tree["step"], tree["seconds"]
    ensemble.histories = tree["histories"]
    ensemble.errors = {member: error_from(told) for member, told in tree["errors"].items()}
    for name in ("values", "alive", "stopped"):
        getattr(ensemble.records, name).copy_(tree[name])
    ensemble.records.clock.fill_(ensemble.steps_done)


def told_of(error: NonFiniteError) -> dict[str, Any]:
    """Return an error in plain values."""
    return {"message": str(error), "epoch": error.epoch, "step": error.step, "layer": error.layer}


def error_from(told: dict[str, Any]) -> NonFiniteError:
    """Return the error that `told_of` was given."""
    return NonFiniteError(told["message"], epoch=told["epoch"], step=told["step"], layer=told["layer"])


def _taken(slab: Weights) -> dict[str, Tensor]:
    taken = {name: _copied(tensor) for name, tensor in slab.buffers.items()}
    for name, leaf in slab.named.items():
        taken |= {name: _packed(leaf.value, leaf), f"{name}_momentum": _packed(leaf.momentum, leaf)}
    return taken


def _copied(tensor: Tensor) -> Tensor:
    return tensor.to("cpu", copy=True)


def _packed(tensor: Tensor, leaf: Leaf) -> Tensor:
    """Return the entries under the masks: off them there are zeros. Layer by layer, as CUDA counts to 2^31 only."""
    if leaf.off is None:
        return _copied(tensor)
    return torch.cat([layer[~off].cpu() for layer, off in zip(tensor, leaf.off, strict=True)])


def _unpack(tensor: Tensor, leaf: Leaf, entries: Tensor) -> None:
    if leaf.off is None:
        tensor.copy_(entries)
        return
    tensor.zero_()
    begin = 0
    for layer, off in zip(tensor, leaf.off, strict=True):
        count = off.numel() - int(off.sum())
        layer.masked_scatter_(~off, entries[begin : begin + count].to(layer.device))
        begin += count
