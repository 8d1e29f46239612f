"""Convolutions of single entries on one thread of a CPU, alone and in networks, against dense and masked ones: time."""

import math
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from orthosparse import attach, compact, sparsify
from orthosparse.lab.bench.compact_entries import step_of
from orthosparse.lab.bench.timing import Found, compared, milliseconds
from orthosparse.lab.models import build

_CPU, _DENSITIES = torch.device("cpu"), (0.1, 0.05, 0.02)
_LAYERS = ((16, 32, 128), (64, 8, 128), (128, 28, 32), (256, 14, 32), (512, 7, 32))  # channels, side, batch
_NETWORKS = ("resnet32", "vgg16c")


def against_dense(device: torch.device, quick: bool) -> Iterator[Found]:
    """Yield forward + backward of a 3 x 3 convolution, as the ratio of the times of the dense and the sparse layer."""
    del device
    for channels, side, batch in ((4, 5, 2),) if quick else _LAYERS:
        for density in _DENSITIES:
            generator = torch.Generator().manual_seed(0)
            layer = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
            model = nn.Sequential(deepcopy(layer))
            attach(model, {"0": torch.rand(layer.weight.shape, generator=generator) < density})
            case, (row,) = (
                f"{channels} channels, {side} x {side}, batch {batch}, density {density}",
                compact(model).rows,
            )
            if row.note:
                yield case, math.nan, None, row.note
                continue
            x = torch.randn(batch, channels, side, side, generator=generator, requires_grad=True)
            calls = {
                "dense": _gradients(layer, x),
                "sparse": _gradients(model, x),
            }
            yield compared(case, milliseconds(calls, _CPU, rounds=3 if quick else 7))


def training_step(device: torch.device, quick: bool) -> Iterator[Found]:
    """Yield a training step of whole networks, uniformly sparse: the ratio of the masked and the compact network.

    Compact are those layers alone that are faster for it.
    """
    del device
    for name in ("resnet32",) if quick else _NETWORKS:
        for density in _DENSITIES[:1] if quick else _DENSITIES:
            generator = torch.Generator().manual_seed(0)
            model = build(name, classes=10, in_shape=(3, 32, 32), generator=generator)
            sparsify(model, density, distribution="uniform", generator=generator)
            x = torch.randn(2 if quick else 128, 3, 32, 32, generator=generator)
            small = deepcopy(model)
            exchanged = len(compact(small, x).exchanged)
            times = milliseconds(
                {"dense": step_of(model, x), "sparse": step_of(small, x)}, _CPU, rounds=1 if quick else 5
            )
            case, ratio, target, detail = compared(f"{name}, batch {len(x)}, density {density}, against masked", times)
            yield case, ratio, target, f"{detail}, {exchanged} layers compact"


def _gradients(module: nn.Module, x: Tensor) -> Callable[[], Any]:
    def call() -> Any:
        y = module(x)
        return torch.autograd.grad(y, [x, *module.parameters()], torch.ones_like(y))

    return call
