"""Tiny models, one of each kind of network, on which every entry of a table must obey the same laws.

`MODELS[name].make()` returns the same weights each time; `MODELS[name].batch()` a batch ``(x, y)`` it takes.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

SAMPLES, CLASSES = 8, 5


class Recomputed(nn.Module):
    """Runs a module again in the backward pass."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(self.inner, x, use_reentrant=False)


class Residual(nn.Module):
    """A strided and a grouped convolution beside a strided 1 x 1 shortcut, then a depthwise one."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.strided = nn.Conv2d(8, 8, 3, stride=2, padding=1, bias=False)
        self.grouped = nn.Conv2d(8, 12, 3, padding=1, groups=2)
        self.shortcut = nn.Conv2d(8, 12, 1, stride=2, bias=False)
        self.depthwise = nn.Conv2d(12, 12, 3, padding=1, groups=12)
        self.head = nn.Linear(12, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.stem(x))
        x = F.relu(self.grouped(F.relu(self.strided(x))) + self.shortcut(x))
        return self.head(F.relu(self.depthwise(x)).mean((2, 3)))


class Block(nn.Module):
    """A transformer block with nn.MultiheadAttention, between an embedding of the inputs and a head."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.embed = nn.Linear(6, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, num_heads=2, dropout=0.1, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Dropout(0.1), nn.Linear(2 * width, width))
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        y = self.norm1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        x = x + self.mlp(self.norm2(x))
        return self.head(x.mean(1))


class Recurrent(nn.Module):
    """An LSTM and a head on its last state."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(6, 8, batch_first=True)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(x)[0][:, -1])


def mlp(activation: Callable[[], nn.Module] = nn.ReLU) -> nn.Module:
    return nn.Sequential(
        nn.Linear(12, 16), activation(), nn.Linear(16, 16), activation(), nn.Linear(16, 10), activation(),
        nn.Linear(10, CLASSES),
    )  # fmt: skip


def batch_norm_net() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, bias=False), nn.BatchNorm2d(6), nn.ReLU(),
        nn.Conv2d(6, 8, 3, stride=2, bias=False), nn.BatchNorm2d(8), nn.LeakyReLU(), nn.Dropout(0.2),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 10), nn.BatchNorm1d(10), nn.SELU(),
        nn.Linear(10, CLASSES),
    )  # fmt: skip


@dataclass(frozen=True)
class Tiny:
    """How to build one tiny model and a batch for it.

    Attributes:
        inputs: shape of one sample.
        homogeneous: non-negative weights and inputs give outputs in proportion to the inputs, as SynFlow needs.
    """

    build: Callable[[], nn.Module]
    inputs: tuple[int, ...]
    homogeneous: bool

    def make(self, seed: int = 0) -> nn.Module:
        with torch.random.fork_rng(devices=[]):  # torch's own initialisation, overwritten below, draws from it
            model = self.build()
        return refilled(model, torch.Generator().manual_seed(seed))

    def batch(self, seed: int = 0, samples: int = SAMPLES) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(samples, *self.inputs, generator=generator)
        return x, torch.randint(CLASSES, (samples,), generator=generator)


@torch.no_grad()
def refilled(model: nn.Module, generator: torch.Generator) -> nn.Module:
    """Draw every weight of `model` from `generator`: matrices of variance 1 / fan-in, scales near 1, biases near 0."""
    for name, parameter in model.named_parameters():
        parameter.normal_(generator=generator)
        if parameter.dim() > 1:
            parameter.mul_(1 / math.sqrt(parameter[0].numel()))
        else:
            parameter.mul_(0.1).add_(0.0 if "bias" in name else 1.0)
    return model


MODELS = {
    "mlp": Tiny(mlp, (12,), homogeneous=True),
    "tanh_mlp": Tiny(lambda: mlp(nn.Tanh), (12,), homogeneous=False),
    "cnn": Tiny(Residual, (3, 8, 8), homogeneous=True),
    "batch_norm": Tiny(batch_norm_net, (3, 8, 8), homogeneous=True),
    "transformer": Tiny(Block, (4, 6), homogeneous=False),
    "lstm": Tiny(Recurrent, (4, 6), homogeneous=False),
}
