"""The networks of the demo as one stack, its training by the paper's optimizer and schedule, and what came of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD
from torch.optim.lr_scheduler import MultiStepLR

import orthosparse
from orthosparse.lab.data import Dataset, Loader


class Stack(nn.Module):
    """The networks side by side: weights [networks, out, in], the square ones of all layers in one tensor.

    They share nothing but the batches: the gradient of the sum of their losses is, for each, that of its own. Masks act
    as on the networks themselves, by a product in the forward pass.

    Args:
        networks: ``mlp`` networks of one depth (3 at least) and width, with tanh between the layers, masked or not.
    """

    def __init__(self, networks: Sequence[nn.Module]) -> None:
        super().__init__()
        layers = [orthosparse.find_layers(network) for network in networks]
        masks = [orthosparse.masks_of(network) for network in networks]
        names = list(layers[0])
        weights, biases, active = [], [], []
        for name in names:
            owned = [found[name] for found in layers]
            weights.append(torch.stack([layer.parameter().detach() for layer in owned]))
            biases.append(torch.stack([layer.module.get_parameter("bias").detach() for layer in owned]).unsqueeze(1))
            kept = [own.get(name, torch.ones_like(weights[-1][0], dtype=torch.bool)) for own in masks]
            active.append(torch.stack(kept).to(weights[-1].dtype))
        self.first, self.last = nn.Parameter(weights[0]), nn.Parameter(weights[-1])
        self.inner = nn.Parameter(torch.stack(weights[1:-1]))
        self.biases = nn.ParameterList(map(nn.Parameter, (biases[0], torch.stack(biases[1:-1]), biases[-1])))
        for part, mask in {"first": active[0], "inner": torch.stack(active[1:-1]), "last": active[-1]}.items():
            self.register_buffer(f"{part}_mask", mask)

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits [networks, batch, classes] of images [batch, ...]."""
        signal = images.flatten(1).expand(len(self.first), -1, -1)
        signal = torch.baddbmm(self.biases[0], signal, self._masked("first")).tanh()
        for weight, bias in zip(self._masked("inner").unbind(0), self.biases[1].unbind(0), strict=True):
            signal = torch.baddbmm(bias, signal, weight).tanh()
        return torch.baddbmm(self.biases[2], signal, self._masked("last"))

    def _masked(self, part: str) -> Tensor:
        weight: Tensor = getattr(self, part) * getattr(self, f"{part}_mask")
        return weight.mT


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
