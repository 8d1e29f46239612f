"""Training the stack by the paper's optimizer and schedule, and what came of it epoch by epoch."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.optim import SGD
from torch.optim.lr_scheduler import MultiStepLR

from orthosparse.lab.data import Dataset, Loader
from orthosparse.lab.demo.stack import Stack


@dataclass(frozen=True)
class Course:
    """How the networks are trained: SGD with Nesterov momentum 0.9, the rate divided by 10 at 1/2 and at 3/4."""

    epochs: int = 30
    rate: float = 0.003
    batch: int = 64
    weight_decay: float = 1e-4

    def __post_init__(self) -> None:
        for name in ("epochs", "rate", "batch"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name}: expected more than 0; got {getattr(self, name)}")


@dataclass(frozen=True)
class History:
    """What happened, a list entry a network in each: losses epoch by epoch, test accuracies after each epoch."""

    losses: list[list[float]] = field(default_factory=list)
    accuracies: list[list[float]] = field(default_factory=list)


Announce = Callable[[int, list[float], list[float]], None]


def train(stack: Stack, data: Dataset, course: Course, seed: int, announce: Announce | None = None) -> History:
    """Train all networks of the stack on the same batches and return how it went.

    Args:
        seed: of the order of the samples.
        announce: told (epoch, losses, accuracies) after every epoch.
    """
    loader = Loader(data.train, batch=course.batch, seed=seed)
    optimizer = SGD(stack.parameters(), lr=course.rate, momentum=0.9, nesterov=True, weight_decay=course.weight_decay)
    schedule = MultiStepLR(optimizer, [course.epochs // 2, course.epochs * 3 // 4])
    history = History()
    for epoch in range(course.epochs):
        losses = _train_epoch(stack, loader, optimizer, epoch)
        schedule.step()
        history.losses.append(losses.tolist())
        history.accuracies.append(accuracies(stack, data).tolist())
        if announce is not None:
            announce(epoch, history.losses[-1], history.accuracies[-1])
    return history


def _train_epoch(stack: Stack, loader: Loader, optimizer: SGD, epoch: int) -> Tensor:
    """Return the mean loss of each network over the epoch."""
    total = torch.zeros(len(stack.first))
    for images, labels in loader.epoch(epoch):
        losses = losses_of(stack(images), labels)
        optimizer.zero_grad()
        losses.sum().backward()
        optimizer.step()
        total += losses.detach() * len(labels)
    return total / len(loader.split)


def losses_of(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the cross-entropy of each network's logits [networks, batch, classes]."""
    each = cross_entropy(logits.flatten(0, 1), labels.repeat(len(logits)), reduction="none")
    return each.view(len(logits), -1).mean(1)


@torch.no_grad()
def accuracies(stack: Stack, data: Dataset) -> Tensor:
    """Return the share of the test images that each network gets right."""
    ((images, labels),) = Loader(data.test, batch=len(data.test), train=False).epoch(0)
    right: Tensor = stack(images).argmax(-1) == labels
    return right.double().mean(1)
