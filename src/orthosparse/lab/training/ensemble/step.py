"""One step of all members: forward, backward and update, captured as a CUDA graph where there is a GPU."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from orthosparse.lab.training.ensemble import fused, launches, pointwise
from orthosparse.lab.training.ensemble.slab import Leaf, Weights
from orthosparse.lab.training.ensemble.state import Ensemble
from orthosparse.lab.training.ensemble.ways import Ways
from orthosparse.lab.training.graph import Graphed


class _Update(NamedTuple):
    """What is trained, its weight decay, whether our kernel takes the step, and which groups of entries that reads."""

    slab: Weights
    leaf: Leaf
    decay: float
    ours: bool
    busy: Tensor | None


class Step:
    """Trains an ensemble on batch after batch; a member that is not finite stops, and no other notices.

    Args:
        graph: capture full batches as a CUDA graph; None does so on a GPU.
    """

    def __init__(self, ensemble: Ensemble, ways: Ways, *, graph: bool | None = None) -> None:
        possible = ensemble.device.type == "cuda"
        if graph and not possible:
            raise ValueError(f"graph: expected a GPU; got {ensemble.device}")
        self.ensemble = ensemble
        self._graphed = Graphed(self._captured) if (possible if graph is None else graph) else None
        self._updates = list(_updates(ensemble, ways))
        self._images = self._labels = torch.empty(0)

    def __call__(self, images: Tensor, labels: Tensor) -> None:
        """Take the next step, on images ``[members, batch, C, H, W]`` and labels ``[members, batch]``."""
        moving = self.ensemble.moving
        taken = {} if moving is None else moving.before()
        self._all(images, labels)
        if moving is not None and taken:
            moving.after(taken, images, labels)
            self._notice()
        self.ensemble.step += 1

    def _all(self, images: Tensor, labels: Tensor) -> None:
        """Take the step with all members."""
        if self._graphed is None or images.shape[1] < self.ensemble.feed.batch:
            self._work(images, labels)
        else:
            self._fill(images, labels)
            self._graphed()

    def _notice(self) -> None:
        """Let what is derived from weights and masks follow them, in place: a captured graph reads it."""
        for slab, leaf, _, _, busy in self._updates:
            if busy is not None and (found := launches.busy_of(leaf)) is not None:
                busy.copy_(found)
            if leaf is slab.weight and slab.rounded is not None:
                slab.rounded.copy_(launches.rounded(leaf.value))

    def _captured(self) -> None:
        self._work(self._images, self._labels)

    def _fill(self, images: Tensor, labels: Tensor) -> None:
        if self._images.shape != images.shape:
            self._images, self._labels = torch.empty_like(images), torch.empty_like(labels)
        self._images.copy_(images)
        self._labels.copy_(labels)

    @torch.no_grad()
    def _work(self, images: Tensor, labels: Tensor) -> None:
        ensemble, network = self.ensemble, self.ensemble.network
        logits, kept = network.ahead(network.rows(images).to(network.dtype))
        losses, gradient = _losses(logits.to(ensemble.dtype), labels, ensemble.recipe.label_smoothing)
        network.back(gradient.to(network.dtype), kept)
        hits = (logits.argmax(2) == labels).sum(1)
        ensemble.records.add(losses, _norms(ensemble), hits)
        self._update()

    def _update(self) -> None:
        ensemble, recipe = self.ensemble, self.ensemble.recipe
        dead = ~ensemble.records.alive
        rates = ensemble.rate * ensemble.records.alive
        for slab, leaf, decay, ours, busy in self._updates:
            value, gradient, momentum = (each.flatten(2) for each in (leaf.value, leaf.gradient, leaf.momentum))
            told = dead.view(1, -1, 1), rates.view(1, -1, 1), (decay, recipe.momentum, recipe.nesterov)
            if ours:
                # A run has this copy from its first step on.
                copy = slab.rounded if leaf is slab.weight else None
                launches.descend(value, gradient, momentum, *told, busy=busy, copy=copy)
            else:
                pointwise.descend(value, gradient, momentum, *told)
        for slab in ensemble.slabs:
            slab.settle(ensemble.records.alive)


def _updates(ensemble: Ensemble, ways: Ways) -> Iterator[_Update]:
    recipe = ensemble.recipe
    ours = fused.chosen(ways, ensemble.device) and ensemble.dtype == torch.float32
    for slab in ensemble.slabs:
        for leaf in slab.leaves:
            decays = leaf is slab.weight or recipe.decay_vectors
            busy = launches.busy_of(leaf) if ours else None
            yield _Update(slab, leaf, recipe.weight_decay if decays else 0.0, ours, busy)


def _losses(logits: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """Return the mean loss of each member, and the gradient of each by its own logits."""
    with torch.enable_grad():
        logits = logits.detach().requires_grad_()
        each = functional.cross_entropy(
            logits.flatten(0, 1), labels.flatten(), reduction="none", label_smoothing=smoothing
        )
        losses = each.view(labels.shape).sum(1) / labels.shape[1]
        (gradient,) = torch.autograd.grad(losses.sum(), logits)
    return losses.detach(), gradient


def _norms(ensemble: Ensemble) -> Tensor:
    """Return the norm of each member's gradient."""
    norms = [leaf.norms for slab in ensemble.slabs for leaf in slab.leaves]
    total: Tensor = torch.linalg.vector_norm(torch.cat(norms), dim=0)
    return total
