"""What a step minimises: the loss summed over a batch, and how many answers were right, for each network."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from orthosparse.lab.training.recipe import Recipe

Objective = Callable[[Tensor, Tensor], Tensor]


def objective(recipe: Recipe) -> Objective:
    """Return a function of logits ``[networks, batch, classes]`` and targets that gives the sum of each one's losses.

    Targets are classes ``[networks, batch]``, or probabilities of the shape of the logits. A sum, so that parts of a
    batch (accumulated, or on other ranks) add up to the whole batch's loss whatever their sizes.
    """
    if recipe.loss == "bce":
        return binary_cross_entropy
    smoothing = recipe.label_smoothing

    def summed(logits: Tensor, target: Tensor) -> Tensor:
        return cross_entropy(logits, target, smoothing)

    return summed


def cross_entropy(logits: Tensor, target: Tensor, smoothing: float = 0.0) -> Tensor:
    """Return the cross-entropy, summed over the batch."""
    each = functional.cross_entropy(
        logits.flatten(0, 1), target.flatten(0, 1), reduction="none", label_smoothing=smoothing
    )
    return each.view(logits.shape[:2]).sum(1)


def binary_cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """Return the binary cross-entropy, averaged over the classes, of every class present in the target against 1."""
    if target.dim() == 2:
        target = functional.one_hot(target, logits.shape[2])
    # DeiT III: a mixed image is an image of both classes, not a fraction of each.
    present = (target > 0).to(logits.dtype)
    each = functional.binary_cross_entropy_with_logits(logits, present, reduction="none")
    return each.sum((1, 2)) / logits.shape[2]


def hits(logits: Tensor, target: Tensor) -> Tensor:
    """Return how many samples of each network have their largest logit at the target (at its largest probability)."""
    label = target if target.dim() == 2 else target.argmax(2)
    return (logits.argmax(2) == label).sum(1, dtype=torch.int64)
