"""The networks that gpt.py trains: a byte-level GPT, dense, thin, or of active blocks alone from several starts."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

import orthosparse

BYTES = 256


@dataclass(frozen=True)
class Shape:
    """Sizes of a network."""

    width: int = 2048
    layers: int = 8
    head: int = 128
    context: int = 1024
    density: float = 0.1
    structure: str = "block:64"


class Block(nn.Module):
    """Attention and a perceptron, each behind a layer norm and beside a shortcut."""

    def __init__(self, width: int, head: int) -> None:
        super().__init__()
        self.heads = max(1, width // head)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.proj = nn.Linear(width, width, bias=False)
        self.fc1, self.fc2 = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1)
        )
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(mixed.transpose(1, 2).flatten(2))
        return x + self.fc2(functional.gelu(self.fc1(self.norm2(x))))


class GPT(nn.Module):
    """Bytes in, logits of the next byte out."""

    def __init__(self, width: int, shape: Shape) -> None:
        super().__init__()
        self.bytes, self.positions = nn.Embedding(BYTES, width), nn.Embedding(shape.context, width)
        self.blocks = nn.ModuleList(Block(width, shape.head) for _ in range(shape.layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, BYTES, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.bytes(tokens) + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))  # type: ignore[no-any-return]


def build(start: str, shape: Shape, seed: int, device: torch.device) -> nn.Module:
    """Return the network of a start: ``dense``, ``thin``, or the scheme of a sparse one."""
    if start == "dense":
        return dense(shape.width, shape, seed, device)
    if start == "thin":
        return dense(thin_width(shape), shape, seed, device)
    return sparse(start, shape, seed, device)


def dense(width: int, shape: Shape, seed: int, device: torch.device) -> GPT:
    """Return a dense network with the usual normal weights: deviation 0.02, that of residual outputs by depth."""
    with torch.device("meta"):
        model = GPT(width, shape)
    model.to_empty(device=device)
    generator = torch.Generator(device).manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 2:
                residual = name.endswith(("proj.weight", "fc2.weight"))
                std = 0.02 / math.sqrt(2 * shape.layers) if residual else 0.02
                parameter.normal_(0.0, std, generator=generator)
            else:
                parameter.fill_(float(name.endswith("weight")))  # layer norms
    return model


def sparse(scheme: str, shape: Shape, seed: int, device: torch.device) -> nn.Module:
    """Return a network of active blocks alone, from a start of that scheme."""
    model = dense(shape.width, shape, seed, device)
    orthosparse.sparsify(
        model,
        shape.density,
        distribution="uniform",
        scheme=scheme,
        structure=shape.structure,
        exclude=["head"],
        generator=torch.Generator().manual_seed(seed),
    )
    orthosparse.compact(model)
    return model


def thin_width(shape: Shape) -> int:
    """Return the width, in whole heads, of the dense network with about as many parameters as the sparse ones."""
    widths = range(shape.head, shape.width + 1, shape.head)
    with torch.device("meta"):
        whole = GPT(shape.width, shape)
        in_blocks = sum(parameter.numel() for name, parameter in whole.named_parameters() if _is_sparse(name))
        wanted = size_of(whole) - in_blocks + round(shape.density * in_blocks)
        return min(widths, key=lambda width: abs(size_of(GPT(width, shape)) - wanted))


def _is_sparse(name: str) -> bool:
    return name.startswith("blocks.") and name.endswith(("qkv.weight", "proj.weight", "fc1.weight", "fc2.weight"))


def size_of(model: nn.Module) -> int:
    """Return the number of parameters."""
    return sum(parameter.numel() for parameter in model.parameters())
