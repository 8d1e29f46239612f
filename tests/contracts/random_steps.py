"""What a step of a random network can be: a table of operations, by the shapes that they take."""

import operator
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Shape = tuple[int, ...]  # of one sample: (channels, side, side), (positions, channels) or (channels,)
Function = Callable[..., Tensor]
Make = Callable[[random.Random, Shape], nn.Module]
WIDTHS = (6, 16, 16)  # few, so that values have equal shapes; and 16, for blocks


class Call(nn.Module):
    """A function of one or two values."""

    def __init__(self, name: str, function: Function) -> None:
        super().__init__()
        self.name, self.function = name, function

    def forward(self, *values: Tensor) -> Tensor:
        return self.function(*values)

    def __repr__(self) -> str:
        return self.name


class Broadcast(nn.Module):
    """A function of a value and a parameter that has one entry per channel."""

    def __init__(self, name: str, function: Function, shape: Shape) -> None:
        super().__init__()
        self.name, self.function, self.parameter = name, function, nn.Parameter(torch.ones(shape))

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, self.parameter)

    def __repr__(self) -> str:
        return f"{self.name} with a parameter"


class Gate(nn.Module):
    """Multiplies each channel by a function of the means of all channels, or adds it."""

    def __init__(self, name: str, activation: Function, combine: Function, width: int) -> None:
        super().__init__()
        self.name, self.activation, self.combine = name, activation, combine
        self.layer = nn.Conv2d(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.combine(x, self.activation(self.layer(x.mean((2, 3), keepdim=True))))

    def __repr__(self) -> str:
        return f"{self.name} of the means, and the value,"


@dataclass(frozen=True)
class Operation:
    """One entry of the table.

    Attributes:
        takes: whether it takes samples of a shape. Which shape it gives is found by running it.
        make: draws the module for samples of that shape.
        reads: number of values that the module reads, all of that shape.
        share: how often it is drawn, relative to the others.
    """

    takes: Callable[[Shape], bool]
    make: Make
    reads: int = 1
    share: int = 1


def anything(shape: Shape) -> bool:
    return True


def images(shape: Shape) -> bool:
    return len(shape) == 3


def vectors(shape: Shape) -> bool:
    return len(shape) < 3


def windows(shape: Shape) -> bool:
    return images(shape) and shape[1] > 2


def even_images(shape: Shape) -> bool:
    return images(shape) and shape[0] % 2 == 0


def channels(shape: Shape) -> int:
    return shape[1] if len(shape) == 2 else shape[0]


def dim(shape: Shape) -> int:
    """Return the dimension of the channels in a batch."""
    return -1 if len(shape) == 2 else 1


def one_of(*modules: Callable[[], nn.Module]) -> Make:
    return lambda choose, shape: choose.choice(modules)()


def a_call(functions: Mapping[str, Function]) -> Make:
    return lambda choose, shape: Call(*choose.choice([*functions.items()]))


def convolution(choose: random.Random, shape: Shape) -> nn.Module:
    side = choose.choice([1, 3, 3]) if windows(shape) else 1
    padding, bias = choose.choice([0, side // 2, side // 2]), choose.random() < 0.6
    mode = choose.choice([*["zeros"] * 6, "circular", "reflect", "replicate"]) if padding else "zeros"
    stride, outputs = choose.choice([1, 1, 1, 2]), choose.choice(WIDTHS)
    return nn.Conv2d(shape[0], outputs, side, stride, padding, bias=bias, padding_mode=mode)


def batch_norm(choose: random.Random, shape: Shape) -> nn.Module:
    return (nn.BatchNorm2d if images(shape) else nn.BatchNorm1d)(shape[0], affine=choose.random() < 0.8)


def broadcast(choose: random.Random, shape: Shape) -> nn.Module:
    name, function = choose.choice([("sum", operator.add), ("product", torch.mul)])
    ones = (shape[0], 1, 1) if images(shape) else (channels(shape),)
    return Broadcast(name, function, choose.choice([ones, (*[1] * (len(shape) + 1 - len(ones)), *ones)]))


def changed_view(choose: random.Random, shape: Shape) -> nn.Module:
    view, change, copies = choose.choice([*VIEWS]), choose.choice([*CHANGES]), choose.random() < 0.5

    def changed(x: Tensor) -> Tensor:
        x = x * 1.0 if copies else x
        CHANGES[change](VIEWS[view](x))
        return x

    return Call(f"{change} through {view} {'of a copy ' * copies}", changed)


def added_in_place(a: Tensor, b: Tensor) -> Tensor:
    a += b
    return a


SMOOTH = {  # their slopes are nowhere zero, but by rounding
    "tanh": torch.tanh, "sigmoid": torch.sigmoid, "softplus": F.softplus, "square": torch.square,
    "rsqrt": lambda x: (x.square() + 1).rsqrt(), "2 *": lambda x: 2 * x, "+ 0.5": lambda x: x + 0.5,
}  # fmt: skip
SMOOTH_CHANGES = {
    "mul_": lambda x: x.mul_(2.0), "add_": lambda x: x.add_(1.0), "tanh_": torch.tanh_,
    "sigmoid_": lambda x: x.sigmoid_(), "copy_": lambda x: x.copy_(torch.tanh(x)),
}  # fmt: skip
SMOOTH_PAIRS = {"sum": operator.add, "torch.add": torch.add, "product": operator.mul, "torch.mul": torch.mul}
CHANGING_PAIRS = {"add_": lambda a, b: a.add_(b), "mul_": lambda a, b: a.mul_(b), "+=": added_in_place}
FUNCTIONS = SMOOTH | {
    "relu": F.relu, "leaky_relu": lambda x: F.leaky_relu(x, 0.2), "clamp": lambda x: torch.clamp(x, -1, 2),
    "abs": torch.abs, "exp": lambda x: torch.exp(-x.abs()), "0 *": lambda x: 0 * x, "1 -": lambda x: 1 - x,
    "softmax": lambda x: torch.softmax(x, 1),
}  # fmt: skip
CHANGES = SMOOTH_CHANGES | {
    "relu_": lambda x: x.relu_(), "neg_": lambda x: x.neg_(), "masked_fill_": lambda x: x.masked_fill_(x > 1, 0.0),
    "relu(inplace)": lambda x: F.relu(x, inplace=True), "clamp(out)": lambda x: torch.clamp(x, -1, 2, out=x),
    "mul_.relu_.neg_": lambda x: x.mul_(2.0).relu_().neg_(),
}  # fmt: skip
PAIRS = SMOOTH_PAIRS | {
    ".add": lambda a, b: a.add(b), "difference": operator.sub, "maximum": torch.maximum,
    "quotient": lambda a, b: a / (b.abs() + 1),
}  # fmt: skip
GATES = (
    ("sigmoid times", torch.sigmoid, operator.mul), ("relu times", torch.relu, torch.mul),
    ("relu plus", F.relu, operator.add),
)  # fmt: skip
VIEWS = {
    "view": lambda x: x.view(x.shape), "chunk": lambda x: x.chunk(2, 1)[0], "slice": lambda x: x[:, :2],
    "every second": lambda x: x[:, ::2], "transpose": lambda x: x.transpose(1, -1), "detach": lambda x: x.detach(),
}  # fmt: skip
FLATTENED = (
    nn.Flatten, lambda: Call("flatten", lambda x: x.flatten(1)),
    lambda: Call("view", lambda x: x.contiguous().view(x.size(0), -1)),
    lambda: Call("reshape", lambda x: x.reshape(x.shape[0], -1)),
)  # fmt: skip

SMOOTH_OPERATIONS = {
    "convolution": Operation(images, convolution, share=10),
    "linear": Operation(vectors, lambda c, s: nn.Linear(s[-1], c.choice(WIDTHS), bias=c.random() < 0.6), share=10),
    "depthwise": Operation(windows, lambda c, s: nn.Conv2d(s[0], s[0], 3, padding=c.randint(0, 1), groups=s[0])),
    "grouped": Operation(even_images, lambda c, s: nn.Conv2d(s[0], 6, 1, groups=2)),
    "batch norm": Operation(anything, batch_norm, share=4),
    "activation": Operation(anything, one_of(nn.Tanh, nn.Sigmoid, nn.Softplus)),
    "function": Operation(anything, a_call(SMOOTH)),
    "change": Operation(anything, a_call(SMOOTH_CHANGES)),
    "pair": Operation(anything, a_call(SMOOTH_PAIRS), reads=2, share=6),
    "changing pair": Operation(anything, a_call(CHANGING_PAIRS), reads=2),
    "gate": Operation(images, lambda c, s: Gate("sigmoid times", torch.sigmoid, operator.mul, s[0])),
    "broadcast": Operation(anything, broadcast, share=2),
    "cat": Operation(anything, lambda c, s: Call("cat", lambda a, b: torch.cat([a, b], dim(s))), reads=2),
    "chunk": Operation(
        lambda s: channels(s) % 2 == 0,
        lambda c, s: Call(f"chunk {(i := c.randint(0, 1))}", lambda x: x.chunk(2, dim(s))[i]),
    ),
    "pool": Operation(windows, one_of(lambda: nn.AvgPool2d(2), lambda: nn.AdaptiveAvgPool2d(1)), share=2),
    "padded pool": Operation(windows, one_of(lambda: nn.AvgPool2d(2, padding=1)), share=2),
    "flatten": Operation(images, one_of(*FLATTENED), share=3),
    "mean": Operation(lambda s: len(s) > 1, lambda c, s: Call("mean", lambda x: x.mean((2, 3) if images(s) else 1))),
    "transpose": Operation(images, lambda c, s: Call("transpose", lambda x: x.transpose(2, 3))),
    "channels last": Operation(images, lambda c, s: Call("permute", lambda x: x.permute(0, 2, 3, 1).contiguous())),
    "no-op": Operation(anything, one_of(nn.Identity, lambda: nn.Dropout(0.0))),
}
OPERATIONS = SMOOTH_OPERATIONS | {
    "layer norm": Operation(vectors, lambda c, s: nn.LayerNorm(s[-1])),
    "group norm": Operation(even_images, lambda c, s: nn.GroupNorm(2, s[0])),
    "activation": Operation(
        anything, one_of(nn.ReLU, nn.GELU, nn.Hardshrink, nn.PReLU, lambda: nn.Threshold(0.1, 2.0)), share=2
    ),
    "activation in place": Operation(
        anything, one_of(*(lambda kind=kind: kind(inplace=True) for kind in (nn.ReLU, nn.SiLU, nn.Hardtanh))), share=2
    ),
    "function": Operation(anything, a_call(FUNCTIONS), share=2),
    "change": Operation(anything, a_call(CHANGES)),
    "changed view": Operation(anything, changed_view, share=2),
    "pair": Operation(anything, a_call(PAIRS), reads=2, share=6),
    "gate": Operation(images, lambda c, s: Gate(*c.choice(GATES), s[0]), share=2),
    "max pool": Operation(windows, one_of(lambda: nn.MaxPool2d(2), lambda: nn.MaxPool2d(2, padding=1)), share=2),
    "slice": Operation(
        lambda s: channels(s) > 3, lambda c, s: Call("slice", lambda x: x.narrow(dim(s), 1, channels(s) - 1))
    ),
}
CHANGING = ("change", "changed view", "changing pair", "activation in place")
