"""Efficiency: what one sparse orthogonal matrix costs, and how orthogonal it is."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from orthosparse import DISTRIBUTIONS, SCHEMES, find_layers, givens, init, isometry, ramanujan
from orthosparse.lab.experiments._clock import now, resolved
from orthosparse.lab.experiments._experiment import Experiment, Progress
from orthosparse.randomness import derive
from orthosparse.registry import lookup

_LONG_ENOUGH, _FEWEST, _MOST = 0.2, 3, 50  # repeat for so many seconds, and so many times
_AI_ITERATIONS = 10_000
_DESCENTS = ("ai", "ai-plain")


@dataclass(frozen=True, eq=False)
class Efficiency(Experiment):
    """An n x n matrix, from the seed to float32 values and mask on the device.

    Attributes:
        method: ``eoi``, ``sao`` (at the density nearest to the asked one that it allows), ``ai`` (from a dense
            orthogonal matrix times a random mask; stops once its loss no longer falls), ``ai-plain`` (goes through all
            its iterations), or ``released-cost-model``. The last is no measurement of a sampler: the paper's released
            code copies the matrix and counts its non-zeros at every rotation, so the model is the measured time of one
            such copy and count, times the expected number of rotations.
        iterations: of AI; None: 10^4.
    """

    kind: ClassVar[str] = "efficiency"
    accelerated: ClassVar[bool] = True

    method: str
    size: int
    density: float
    iterations: int | None = None

    def __post_init__(self) -> None:
        """Check the method's name.

        Raises:
            ValueError: an unknown one.
        """
        lookup(_METHODS, self.method, "method")

    def unread(self) -> set[str]:
        """Return the iterations, which AI alone has."""
        return set() if self.method == "ai" else {"iterations"}

    def cost(self) -> float:
        """Return a rough number of seconds on a processor."""
        if self.method not in _DESCENTS:
            return 1.0 + 1e-7 * self.size**2
        return 1.0 + (self.iterations or _AI_ITERATIONS) * (2e-5 + 4 * self.size**3 * 1e-11)

    def run(
        self,
        seed: int,
        *,
        root: Path | str | None = None,
        out: Path | None = None,
        device: str = "auto",
        progress: Progress | None = None,
    ) -> dict[str, Any]:
        """Return seconds (of the model: ``modelled_seconds``), the orthogonality score and what was drawn."""
        del root, out, progress  # no data, nothing kept, too short to watch
        return _METHODS[self.method](self, seed, resolved(device)) | {"threads": torch.get_num_threads()}


def _eoi(experiment: Efficiency, seed: int, device: torch.device) -> dict[str, Any]:
    count = round(experiment.density * experiment.size**2)

    def draw(turn: int) -> tuple[Tensor, Tensor]:
        shape, generator = (experiment.size, experiment.size), derive(seed, "eoi", turn)
        values, mask = givens.sample(shape, count, dtype=torch.float32, generator=generator)
        return values.to(device), mask.to(device)

    return _measured(draw, device)


def _sao(experiment: Efficiency, seed: int, device: torch.device) -> dict[str, Any]:
    shape = (experiment.size, experiment.size)
    degree = min(ramanujan.degrees_of(shape), key=lambda each: abs(each - experiment.density * experiment.size))

    def draw(turn: int) -> tuple[Tensor, Tensor]:
        values, mask = ramanujan.sample(shape, degree, generator=derive(seed, "sao", turn))
        return values.float().to(device), mask.to(device)

    return _measured(draw, device)


def _ai(experiment: Efficiency, seed: int, device: torch.device, **own: float) -> dict[str, Any]:
    iterations = experiment.iterations or _AI_ITERATIONS
    linear: nn.Linear = nn.utils.skip_init(nn.Linear, experiment.size, experiment.size, bias=False, device=device)
    masks = DISTRIBUTIONS["uniform"](linear, experiment.density, generator=derive(seed, "mask"))
    layers = find_layers(linear)

    def draw(turn: int) -> tuple[Tensor, Tensor]:
        generator = derive(seed, "ai", turn)
        with torch.no_grad():
            init.orthogonal_(linear.weight, generator=generator)
        options = {"iterations": iterations, "device": device, "generator": generator, **own}
        mask = SCHEMES["ai"](linear, masks, layers=layers, **options)["weight"]
        return linear.weight.detach(), mask

    return _measured(draw, device, fewest=1) | {"iterations": iterations}


def _released(experiment: Efficiency, seed: int, device: torch.device) -> dict[str, Any]:
    del seed, device  # nothing is drawn; the released code works on the processor
    rotations = givens.expected_rotations(experiment.size, experiment.size, experiment.density)
    matrix = torch.zeros(experiment.size, experiment.size)
    matrix.fill_diagonal_(1.0)

    def turn(_: int) -> tuple[Tensor, Tensor]:
        copy = matrix.clone()
        return copy, torch.count_nonzero(copy)

    each = median(_times(turn, torch.device("cpu"))[0])
    return {"modelled_seconds": rotations * each, "rotations": rotations, "seconds_per_rotation": each}


_METHODS: dict[str, Callable[[Efficiency, int, torch.device], dict[str, Any]]] = {
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
