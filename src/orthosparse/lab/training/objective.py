"""What a step minimises: the loss summed over a batch, and how many answers were right."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from orthosparse.lab.training.recipe import Recipe

Objective = Callable[[Tensor, Tensor], Tensor]


def objective(recipe: Recipe) -> Objective:
    """Return ``(logits, target) -> sum of the losses``; targets are classes [n] or probabilities [n, classes].

    A sum, so that parts of a batch (accumulated, or on other ranks) add up to the whole batch's loss whatever their
    sizes.
    """
    if recipe.loss == "bce":
        return binary_cross_entropy
    smoothing = recipe.label_smoothing

    def cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
        return functional.cross_entropy(logits, target, reduction="sum", label_smoothing=smoothing)

    return cross_entropy


def binary_cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """Return the binary cross-entropy, averaged over the classes, of every class present in the target against 1."""
    if target.dim() == 1:
        target = functional.one_hot(target, logits.shape[1])
    # DeiT III: a mixed image is an image of both classes, not a fraction of each.
    present = (target > 0).to(logits.dtype)
    return functional.binary_cross_entropy_with_logits(logits, present, reduction="sum") / logits.shape[1]


def hits(logits: Tensor, target: Tensor) -> Tensor:
    """Return how many samples have their largest logit at the target (at its largest probability)."""
    label = target if target.dim() == 1 else target.argmax(1)
    return (logits.argmax(1) == label).sum(dtype=torch.int64)
