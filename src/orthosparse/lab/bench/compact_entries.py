"""Linear layers of single entries on one thread of a CPU against dense and masked ones: time, and peak memory."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from orthosparse import SparseLinear, sparsify
from orthosparse.lab.bench.timing import Found, broken_even, compared, fresh, milliseconds

_BATCH, _CPU = 128, torch.device("cpu")
_TARGETS = {0.1: 2.0, 0.05: 4.5, 0.01: 18.0}
_DENSITIES = (0.01, 0.05, 0.1, 0.2, 0.35, 0.5)
_WIDTHS, _STEPS = (784, 4096, 4096, 4096, 10), 6
# Training steps in a process of their own; prints milliseconds a step, and bytes above the level after the imports.
_TRAIN = """
from time import perf_counter
from orthosparse.lab.bench.compact_entries import peak, trained
import torch
torch.set_num_threads(1)
trained({kind!r}, (8, 8, 4), 0.5)()
level = peak(reset=True)
step, times = trained({kind!r}, {widths!r}, 0.01), []
for _ in range({steps}):
    start = perf_counter()
    step()
    times.append(1e3 * (perf_counter() - start))
print(min(times[1:]), peak() - level)
"""


def against_dense(device: torch.device, quick: bool) -> Iterator[Found]:
    """Yield forward + backward, and forward alone, as the ratio of the times of the dense and the sparse layer."""
    del device
    side = 256 if quick else 2048
    for density, target in _TARGETS.items():
        for what, calls in _calls(side, density).items():
            times = milliseconds(calls, _CPU, rounds=3 if quick else 9, block=0.01 if quick else 0.15)
            aim = target if what == "step" and not quick else None
            yield compared(f"{side} x {side}, batch {_BATCH}, density {density}, {what}", times, aim)


def forward(device: torch.device, quick: bool) -> Iterator[Found]:
    """Yield the forward pass without gradients, as for inference: the ratio of the dense and the sparse layer."""
    del device
    for side in (256,) if quick else (1024, 2048, 4096):
        for density in (0.1, 0.05, 0.02):
            for batch in (1, 8, 64, 512):
                with torch.inference_mode():
                    calls = _calls(side, density, batch)["forward"]
                    times = milliseconds(calls, _CPU, rounds=3 if quick else 5)
                yield compared(f"{side} x {side}, batch {batch}, density {density}, inference", times)


def break_even(device: torch.device, quick: bool) -> Iterator[Found]:
    """Yield the density at which forward + backward take as long as those of the dense layer, by interpolation."""
    del device
    for side in (128,) if quick else (256, 1024, 2048):
        ratios = {}
        for density in _DENSITIES:
            times = milliseconds(_calls(side, density)["step"], _CPU, rounds=3)
            ratios[density] = times["dense"] / times["sparse"]
        yield broken_even(f"{side} x {side}", ratios)


def training_step(device: torch.device, quick: bool) -> Iterator[tuple[Any, ...]]:
    """Yield time and peak memory of a training step at density .01, compact against masked, each in a fresh process."""
    del device
    widths, steps = ((64, 96, 10), 3) if quick else (_WIDTHS, _STEPS)
    (masked_ms, masked_bytes), (compact_ms, compact_bytes) = (
        fresh(_TRAIN.format(kind=kind, widths=widths, steps=steps)) for kind in ("masked", "compact")
    )
    case = f"MLP {'-'.join(map(str, widths))}, density 0.01"
    yield f"{case}, time", masked_ms / compact_ms, 8.0, f"{compact_ms:.1f} of {masked_ms:.1f} ms"
    detail = f"{compact_bytes / 2**20:.0f} of {masked_bytes / 2**20:.0f} MiB"
    yield f"{case}, memory", compact_bytes / max(masked_bytes, 1), 0.15, detail, True


def trained(kind: str, widths: tuple[int, ...], density: float) -> Callable[[], None]:
    """Return a training step (SGD with momentum) of an MLP of so many active weights, ``masked`` or ``compact``."""
    generator = torch.Generator().manual_seed(0)
    if kind == "masked":
        model = _mlp(nn.Linear(*sides) for sides in pairwise(widths))
        sparsify(model, density, distribution="uniform", scheme="base", generator=generator)
    else:
        model = _mlp(sparse_layer(*sides, density, generator) for sides in pairwise(widths))
    return step_of(model, torch.randn(_BATCH, widths[0], generator=generator))


def step_of(model: nn.Module, x: Tensor) -> Callable[[], None]:
    """Return a training step (SGD with momentum) of a classifier on one batch."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    y = torch.zeros(len(x), dtype=torch.int64)

    def step() -> None:
        optimizer.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    return step


def peak(*, reset: bool = False) -> int:
    """Return the most bytes this process has held since the start or the last reset, as Linux counts them."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    return 1024 * int(status["VmRSS" if reset else "VmHWM"].split()[0])


def _mlp(layers: Iterator[nn.Module]) -> nn.Module:
    return nn.Sequential(*[module for layer in layers for module in (layer, nn.ReLU())][:-1])


def sparse_layer(inputs: int, outputs: int, density: float, generator: torch.Generator) -> SparseLinear:
    """Return a layer of random entries with normal values."""
    layer = SparseLinear(inputs, outputs, round(density * inputs * outputs))
    room, index = inputs * outputs, torch.empty(0, dtype=torch.int64)
    while len(index) < layer.units:  # drawn until there are enough different ones: never as many as the dense matrix
        drawn = torch.randint(room, (layer.units,), generator=generator)
        index = torch.cat([index, drawn]).unique()
    kept = torch.randperm(len(index), generator=generator)[: layer.units]
    layer.move(index[kept].sort().values)
    with torch.no_grad():
        layer.values.normal_(std=(density * inputs) ** -0.5, generator=generator)
    return layer


def _calls(side: int, density: float, batch: int = _BATCH) -> dict[str, dict[str, Callable[[], Any]]]:
    generator = torch.Generator().manual_seed(0)
    draw = partial(torch.randn, generator=generator)
    x, grad, weight = draw(batch, side, requires_grad=True), draw(batch, side), draw(side, side, requires_grad=True)
    layer = sparse_layer(side, side, density, generator)
    bias = layer.bias
    assert bias is not None
    forwards: dict[str, Callable[[], Any]] = {
        "dense": lambda: functional.linear(x, weight, bias),
        "sparse": lambda: layer(x),
    }
    return {
        "forward": forwards,
        "step": {
            "dense": lambda: torch.autograd.grad(forwards["dense"](), [x, weight, bias], grad),
            "sparse": lambda: torch.autograd.grad(forwards["sparse"](), [x, layer.values, bias], grad),
        },
    }
