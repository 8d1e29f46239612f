"""How exact and how fast the Givens sampler is, against plain random numbers of the same size in the same run."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from time import thread_time

import torch
from torch import Tensor

from orthosparse import givens
from orthosparse.hardware import on_threads
from orthosparse.lab.bench.timing import fresh, in_turn, shortest

_FIRST_CALL = """
import torch, orthosparse, time
from orthosparse import givens
start = time.perf_counter()
givens.sample((256, 256), 8192, dtype=torch.float32)
print(1e3 * (time.perf_counter() - start))
"""
_IMPORT = (
    "import torch, time; start = time.perf_counter(); from orthosparse import *; print(time.perf_counter() - start)"
)
_LARGE = """
import resource, time, torch
from orthosparse import givens
start = time.perf_counter()
givens.sample_csr(({size}, {size}), {count}, dtype=torch.float32)
print(time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)
"""


@dataclass(frozen=True)
class Row:
    """One measured figure.

    Attributes:
        limit: what it may be at most; None where nothing is promised.
    """

    check: str
    case: str
    value: float
    limit: float | None
    detail: str = ""


def exactness(quick: bool) -> Iterator[Row]:
    """Yield the worst errors over random shapes up to 300 x 300 and any count that an orthogonal matrix can have."""
    questions, generator = 30 if quick else 300, torch.Generator().manual_seed(0)
    case = f"{questions} shapes up to 300 x 300, any count"
    worst = dict.fromkeys((torch.float64, torch.float32, torch.bfloat16, torch.float16), 0.0)
    wrong, apart = 0, 0.0
    for seed in range(questions):
        shape, count = _question(generator)
        for dtype in worst:
            values, mask = givens.sample(shape, count, generator=torch.Generator().manual_seed(seed), dtype=dtype)
            wrong += int(mask.sum()) != count
            floor = 1.0 if dtype == torch.float64 else torch.finfo(dtype).eps * math.sqrt(min(shape)) + 1e-12
            worst[dtype] = max(worst[dtype], _gram_error(values) / floor)
        if givens.has_kernel():
            pair = [
                givens.sample(shape, count, generator=torch.Generator().manual_seed(seed), backend=backend)
                for backend in ("kernel", "python")
            ]
            wrong += not torch.equal(pair[0][1], pair[1][1])
            apart = max(apart, float((pair[0][0] - pair[1][0]).abs().max()))
    yield Row("wrong counts or masks", case, wrong, 0)
    yield Row("|| A A^T - I ||, float64", case, worst.pop(torch.float64), 1e-12)
    for dtype, error in worst.items():
        yield Row("|| A A^T - I || / rounding floor", str(dtype).removeprefix("torch."), error, 1.0)
    yield Row("kernel minus Python, largest", case, apart, 1e-15)


def speed(quick: bool) -> Iterator[Row]:
    """Yield the sampler's time over that of ``torch.randn(n, n) * (torch.rand(n, n) < d)``, float32."""
    generator = torch.Generator().manual_seed(0)
    limits = {"kernel": 0.35, "python": 3.0} if givens.has_kernel() else {"python": 3.0}
    for size in (256, 512) if quick else (256, 512, 1024, 2048, 4096):
        for density in (0.01, 0.0625, 0.125, 0.5):
            count = max(size, round(density * size**2))
            calls: dict[str, Callable[[], object]] = {"plain": partial(_plain, size, density, generator)}
            for backend in limits:
                calls[backend] = partial(
                    givens.sample, (size, size), count, generator=generator, dtype=torch.float32, backend=backend
                )
            times = in_turn(calls, rounds=max(5, 20_000 // size))
            for backend, limit in limits.items():
                detail = f"{1e3 * times[backend][0]:.3f} ms of {1e3 * times['plain'][0]:.3f} ms"
                yield Row(f"{backend} / plain", f"{size} x {size}, density {density}", times[backend][1], limit, detail)


def calls(quick: bool) -> Iterator[Row]:
    """Yield the times of a large batch, of the first call in a process, and of the import."""
    batch, generator = 100 if quick else 1000, torch.Generator().manual_seed(0)
    many = partial(givens.sample_batch, batch, (128, 128), 2048, generator=generator, dtype=torch.float32)
    yield Row("one call, seconds", f"{batch} of 128 x 128, density 0.125", shortest(many, 3), 0.3)
    yield Row("first call, milliseconds", "256 x 256, fresh process", min(fresh(_FIRST_CALL)[0] for _ in range(3)), 50)
    yield Row("import, seconds", "beyond torch, fresh process", min(fresh(_IMPORT)[0] for _ in range(3)), 0.3)


def growth(quick: bool) -> Iterator[Row]:
    """Yield the exponent of processor time against size at 10 entries a row, and a matrix too large to be dense."""
    sizes = [2**power for power in (range(10, 14) if quick else range(12, 18))]
    generator, seconds = torch.Generator().manual_seed(0), []
    for size in sizes:
        draw = partial(givens.sample_csr, (size, size), 10 * size, generator=generator, dtype=torch.float32)
        seconds.append(shortest(draw, 7, clock=thread_time))  # large draws are never left in peace for long
    detail = ", ".join(f"{1e3 * taken:.1f}" for taken in seconds) + " ms"
    yield Row("exponent", f"n = {sizes[0]}..{sizes[-1]}, 10 entries a row", _slope(sizes, seconds), 1.3, detail)
    size = 10_000 if quick else 100_000
    taken, memory = fresh(_LARGE.format(size=size, count=size * size // 10_000))
    detail = f"the process never held more than {memory:.2f} GiB"
    yield Row("compressed, seconds", f"{size} x {size}, density 0.0001", taken, None, detail)


def observation(quick: bool) -> Iterator[Row]:
    """Yield how often the mean density after t rotations is off Observation 1 by more than three standard errors."""
    runs = 50 if quick else 400
    drawn = [givens.counts_after((100, 100), 1000, generator=torch.Generator().manual_seed(run)) for run in range(runs)]
    densities = torch.stack(drawn).double() / 100**2
    error = densities.std(0) / math.sqrt(runs)
    off = (densities.mean(0) - givens.expected_density(100, 1000)).abs()
    share = float((off > 3 * error + 1e-12).double().mean())
    yield Row("points off by 3 standard errors", f"n = 100, t = 0..1000, {runs} draws", share, 0.05)


CHECKS = {"exactness": exactness, "speed": speed, "calls": calls, "growth": growth, "observation": observation}


def run(checks: Sequence[str] = tuple(CHECKS), *, quick: bool = False) -> Iterator[Row]:
    """Yield the rows of the named checks, on one thread."""
    with on_threads(1):
        for check in checks:
            yield from CHECKS[check](quick)


def line(row: Row) -> str:
    """Return a row as a line of the table."""
    verdict = "" if row.limit is None else f"<= {row.limit:<8g} {'ok' if row.value <= row.limit else 'OVER'}"
    return f"{row.check:34s}{row.case:42s}{row.value:11.4g} {verdict:18s}{row.detail}".rstrip()


def _plain(size: int, density: float, generator: torch.Generator) -> Tensor:
    return torch.randn(size, size, generator=generator) * (torch.rand(size, size, generator=generator) < density)


def _question(generator: torch.Generator) -> tuple[tuple[int, int], int]:
    rows, cols = torch.randint(1, 301, (2,), generator=generator).tolist()
    return (rows, cols), int(torch.randint(min(rows, cols), rows * cols + 1, (), generator=generator))


def _gram_error(matrix: Tensor) -> float:
    wide = matrix.double() if matrix.shape[0] <= matrix.shape[1] else matrix.double().T
    return float((wide @ wide.T - torch.eye(len(wide), dtype=torch.float64)).norm())


def _slope(sizes: Sequence[int], seconds: Sequence[float]) -> float:
    """Return the exponent of a power law through the points, by least squares."""
    x, y = torch.tensor(sizes).double().log(), torch.tensor(seconds).double().log()
    return float(((x - x.mean()) * (y - y.mean())).sum() / (x - x.mean()).square().sum())
