"""Random networks: branching programs of layers, norms, activations and views, some of which change tensors in place.

``network(seed)`` returns the same network each time, in float64 and eval mode; `inputs` draws a batch for it. Each step
of a network reads values that were computed before, the first of which is the input, and computes another one. The
repr of a network shows these steps.
"""

import math
import random
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from contracts.random_steps import OPERATIONS, Call, Operation, Shape, channels

SHAPES: tuple[Shape, ...] = ((3, 8, 8), (3, 8, 8), (5, 6), (6,))
CLASSES, STEPS = 3, 14
MOST_ENTRIES, LARGEST_VALUE = 1024, 1e3  # of a sample; steps beyond are left out


class Network(nn.Module):
    """Runs its steps one after the other, then a linear layer on the mean of the last value over positions.

    Attributes:
        sources: the numbers of the values that each step reads; 0 is the input.
        also: the number of a value that is returned beside the output, if any.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape, self.steps, self.head = shape, nn.ModuleList(), nn.Sequential()
        self.sources: list[list[int]] = []
        self.also: int | None = None

    def values(self, x: Tensor) -> list[Tensor]:
        values = [x]
        for step, sources in zip(self.steps, self.sources, strict=True):
            values.append(step(*[values[source] for source in sources]))
        return values

    def forward(self, x: Tensor) -> Any:
        values = self.values(x)
        output = self.head(values[-1])
        return output if self.also is None else (output, values[self.also])

    def __repr__(self) -> str:
        lines, steps = [f"0: input {self.shape}"], list(self.steps)
        for number, (step, sources) in enumerate(zip(steps, self.sources, strict=True), start=1):
            first = steps.index(step) + 1
            called = str(step) if first == number else f"step {first} again"
            lines.append(f"{number}: {called} of {', '.join(map(str, sources))}")
        return "\n  ".join(["Network", *lines, "head" if self.also is None else f"head, and {self.also}"])


def network(
    seed: int, operations: Mapping[str, Operation] = OPERATIONS, *, trainable: bool = False, pairs: bool = False
) -> Network:
    """Return a network of random operations and weights.

    Args:
        trainable: leave out changes in place after which autograd cannot differentiate twice.
        pairs: let some networks return one of their values beside the output.
    """
    choose, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    model = Network(choose.choice(SHAPES))
    x = inputs(model, 4, generator)
    shapes = [model.shape]
    with torch.random.fork_rng(devices=[]):  # torch's own initialization, overwritten by `fill`, draws from it
        for _ in range(choose.randint(5, STEPS)):
            step, sources = _step(choose, model, shapes, operations)
            if step not in model.steps:
                fill(step, generator)
            model.steps.append(step)
            model.sources.append(sources)
            value = _last_value(model, x, trainable)
            if value is None:
                del model.steps[-1], model.sources[-1]
            else:
                shapes.append(tuple(value.shape[1:]))
        model.head = fill(_head(shapes[-1]), generator)
    model.also = choose.randrange(len(shapes)) if pairs and choose.random() < 0.3 else None
    return model.eval()


def inputs(model: Network, samples: int, generator: torch.Generator) -> Tensor:
    return torch.randn(samples, *model.shape, generator=generator, dtype=torch.float64)


@torch.no_grad()
def fill(module: nn.Module, generator: torch.Generator) -> nn.Module:
    """Draw all tensors of a module: matrices of variance 1 / fan-in, scales near 1, biases and means near 0."""
    module.double().eval()
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if tensor.is_floating_point():
            tensor.normal_(generator=generator)
            if "var" in name:
                tensor.abs_().add_(0.1)
            elif tensor.dim() > 1:
                tensor.mul_(1 / math.sqrt(tensor[0].numel()))
            else:
                tensor.mul_(0.3).add_(1.0 if "weight" in name else 0.0)
    return module


@torch.no_grad()
def with_dead_units(
    model: Network, generator: torch.Generator, *, density: float, dead: float, norms: float = 0.0
) -> None:
    """Set weights to zero: `dead` of the rows and columns of layers, and `norms` of the scales of norms, on average."""
    for name, tensor in model.named_parameters():
        if "weight" in name and tensor.dim() > 1:
            tensor.mul_(torch.rand(tensor.shape, generator=generator) < density)
            tensor[torch.rand(len(tensor), generator=generator) < dead] = 0.0
            tensor[:, torch.rand(tensor.shape[1], generator=generator) < dead] = 0.0
        elif "weight" in name:
            tensor.mul_(torch.rand(tensor.shape, generator=generator) >= norms)


def _step(
    choose: random.Random, model: Network, shapes: list[Shape], operations: Mapping[str, Operation]
) -> tuple[nn.Module, list[int]]:
    """Draw a step, now and then one that the network has already, and the values that it reads."""
    shape = shapes[-1] if choose.random() < 0.6 else choose.choice(shapes)
    numbers = [number for number, each in enumerate(shapes) if each == shape]
    earlier = [
        step
        for step, sources in zip(model.steps, model.sources, strict=True)
        if len(sources) == 1 and shapes[sources[0]] == shape
    ]
    if earlier and choose.random() < 0.1:
        return choose.choice(earlier), [numbers[-1]]
    fitting = [operation for operation in operations.values() if operation.takes(shape)]
    (operation,) = choose.choices(fitting, [each.share for each in fitting])
    return operation.make(choose, shape), [numbers[-1], choose.choice(numbers)][: operation.reads]


def _last_value(model: Network, x: Tensor, trainable: bool) -> Tensor | None:
    """Return the value of the last step; None if it is too large, or if torch cannot compute or differentiate it."""
    leaf = x.clone().requires_grad_(trainable)
    try:
        with torch.set_grad_enabled(trainable):
            value = model.values(leaf * 1.0)[-1]
            if trainable:
                wanted = [leaf, *model.parameters()]
                slopes = torch.autograd.grad(value.sin().sum(), wanted, create_graph=True, materialize_grads=True)
                torch.autograd.grad(sum(slope.sin().sum() for slope in slopes), wanted, materialize_grads=True)
    except RuntimeError:
        return None
    fits = value[0].numel() <= MOST_ENTRIES and bool(value.abs().max() <= LARGEST_VALUE)
    return value.detach() if fits else None


def _head(shape: Shape) -> nn.Module:
    positions = {3: (2, 3), 2: (1,), 1: ()}[len(shape)]
    pool = [Call("mean", lambda x: x.mean(positions))] if positions else []
    return nn.Sequential(*pool, nn.Linear(channels(shape), CLASSES))
