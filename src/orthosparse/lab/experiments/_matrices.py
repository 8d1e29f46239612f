"""One sparse orthogonal matrix by each method: how long it takes, and how orthogonal it is."""

from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from orthosparse import DISTRIBUTIONS, SCHEMES, find_layers, givens, init, isometry, ramanujan
from orthosparse.lab.training.devices import now
from orthosparse.randomness import derive

_LONG_ENOUGH, _FEWEST, _MOST = 0.2, 3, 50  # repeat for so many seconds, and so many times


class Matrix(NamedTuple):
    """A square matrix; `iterations` are those of AI."""

    size: int
    density: float
    iterations: int


def measure(method: str, size: int, density: float, iterations: int, seed: int, device: torch.device) -> dict[str, Any]:
    """Return the metrics of one method, see `Efficiency`."""
    found = _METHODS[method](Matrix(size, density, iterations), seed, device)
    return found | {"threads": torch.get_num_threads()}


def _eoi(matrix: Matrix, seed: int, device: torch.device) -> dict[str, Any]:
    count = round(matrix.density * matrix.size**2)

    def draw(turn: int) -> tuple[Tensor, Tensor]:
        shape, generator = (matrix.size, matrix.size), derive(seed, "eoi", turn)
        values, mask = givens.sample(shape, count, dtype=torch.float32, generator=generator)
        return values.to(device), mask.to(device)

    return _measured(draw, device)


def _sao(matrix: Matrix, seed: int, device: torch.device) -> dict[str, Any]:
    shape = (matrix.size, matrix.size)
    degree = min(ramanujan.degrees_of(shape), key=lambda each: abs(each - matrix.density * matrix.size))

    def draw(turn: int) -> tuple[Tensor, Tensor]:
        values, mask = ramanujan.sample(shape, degree, generator=derive(seed, "sao", turn))
        return values.float().to(device), mask.to(device)

    return _measured(draw, device)


def _ai(matrix: Matrix, seed: int, device: torch.device, **own: float) -> dict[str, Any]:
    linear: nn.Linear = nn.utils.skip_init(nn.Linear, matrix.size, matrix.size, bias=False, device=device)
    masks = DISTRIBUTIONS["uniform"](linear, matrix.density, generator=derive(seed, "mask"))
    layers = find_layers(linear)

    def draw(turn: int) -> tuple[Tensor, Tensor]:
        generator = derive(seed, "ai", turn)
        with torch.no_grad():
            init.orthogonal_(linear.weight, generator=generator)
        options = {"iterations": matrix.iterations, "device": device, "generator": generator, **own}
        mask = SCHEMES["ai"](linear, masks, layers=layers, **options)["weight"]
        return linear.weight.detach(), mask

    return _measured(draw, device, fewest=1) | {"iterations": matrix.iterations}


def _released(matrix: Matrix, seed: int, device: torch.device) -> dict[str, Any]:
    del seed, device  # nothing is drawn; the released code works on the processor
    rotations = givens.expected_rotations(matrix.size, matrix.size, matrix.density)
    identity = torch.zeros(matrix.size, matrix.size)
    identity.fill_diagonal_(1.0)

    def turn(_: int) -> tuple[Tensor, Tensor]:
        copy = identity.clone()
        return copy, torch.count_nonzero(copy)

    each = median(_times(turn, torch.device("cpu"))[0])
    return {"modelled_seconds": rotations * each, "rotations": rotations, "seconds_per_rotation": each}


_METHODS: dict[str, Callable[[Matrix, int, torch.device], dict[str, Any]]] = {
    "ai": _ai,
    "ai-plain": partial(_ai, tolerance=0.0),
    "eoi": _eoi,
    "released-cost-model": _released,
    "sao": _sao,
}


def _measured(
    draw: Callable[[int], tuple[Tensor, Tensor]], device: torch.device, *, fewest: int = _FEWEST
) -> dict[str, Any]:
    times, (values, mask) = _times(draw, device, fewest=fewest)
    score = isometry.orthogonality_score(values.cpu())
    return {
        "seconds": median(times),
        "fastest_seconds": min(times),
        "repeats": len(times),
        "orthogonality": float(score),
        "density": int(mask.sum()) / mask.numel(),
    }


def _times(
    draw: Callable[[int], tuple[Tensor, Tensor]], device: torch.device, *, fewest: int = _FEWEST
) -> tuple[list[float], tuple[Tensor, Tensor]]:
    """Return the seconds of every draw, and the last one's result; a first draw warms caches and is not counted."""
    if fewest > 1:
        draw(0)
    times: list[float] = []
    while len(times) < fewest or (sum(times) < _LONG_ENOUGH and len(times) < _MOST):
        begin = now(device)
        result = draw(len(times) + 1)
        times.append(now(device) - begin)
    return times, result
