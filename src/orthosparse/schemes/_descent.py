"""Gradient descent of many matrices towards orthogonality, batched by shape, with independent results."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import torch

from orthosparse.hardware import on_threads
from orthosparse.progress import Reporter, silent

CHECK = 50  # iterations between checks of the states
WINDOW = 250  # iterations within which a loss has to decrease; a multiple of CHECK
_TINY = 1e-30  # the smallest loss that the gradient is divided by

# Entries of the matrices in one batch: on the CPU as many as its caches hold, elsewhere enough to fill a device.
_BATCH, _BATCH_ON_DEVICE = 2**17, 2**24


def descend(
    matrices: Sequence[torch.Tensor],
    masks: Sequence[torch.Tensor],
    *,
    target: float,
    iterations: int,
    rate: float,
    tolerance: float,
    report: Reporter = silent,
) -> list[torch.Tensor]:
    """Minimize ||C C^T - target I||_F over the active entries of each matrix C, by plain gradient descent.

    All matrices are on one device; the Gram matrix is that of the smaller side. The result for each is the best of the
    states that are checked every CHECK iterations, including the start. A matrix stops early once WINDOW iterations
    lower its loss by less than the fraction `tolerance`. Its bits depend neither on the others nor, on the CPU, on the
    number of threads.
    """
    results = list(matrices)
    stopped = threading.Event()
    lower = partial(_descend, target=target, iterations=iterations, rate=rate, tolerance=tolerance)
    tally = _Tally(len(matrices) * iterations, report)

    def work(batch: list[int]) -> None:
        states = torch.stack([_wide(matrices[index]) for index in batch])
        active = torch.stack([_wide(masks[index]) for index in batch]).to(states)
        lower(states, active, stopped, tally.part())
        for index, state in zip(batch, states, strict=True):
            results[index] = _wide(state, like=matrices[index])

    if matrices and matrices[0].device.type == "cpu":
        _in_threads(work, _packed(matrices, _BATCH), stopped)
    else:
        for batch in _packed(matrices, _BATCH_ON_DEVICE):
            work(batch)
    return results


@torch.no_grad()
def _descend(
    best: torch.Tensor,
    active: torch.Tensor,
    stopped: threading.Event,
    advance: Callable[[int], None],
    *,
    target: float,
    iterations: int,
    rate: float,
    tolerance: float,
) -> None:
    """Lower the loss of each of `best`, [batch, short, long], in place."""
    identity = torch.eye(best.shape[1], dtype=best.dtype, device=best.device).mul_(-target)
    running, states = torch.arange(len(best), device=best.device), best.clone()
    least = states.new_full((len(best),), torch.inf)  # the losses of `best`
    lowest, before = least.clone(), least.clone()  # of all states, now and one window ago
    gram, step = states.new_empty(len(best), *identity.shape), torch.empty_like(states)
    for iteration in range(iterations + 1):
        torch.baddbmm(identity.expand_as(gram), states, states.mT, out=gram)
        loss = torch.linalg.vector_norm(gram, dim=(1, 2))
        torch.minimum(lowest, loss, out=lowest)
        if iteration % CHECK == 0 or iteration == iterations:
            better = loss < least[running]
            least[running[better]], best[running[better]] = loss[better], states[better]
            advance((len(best) - len(running)) * iterations + len(running) * iteration)
            if stopped.is_set():
                return
        if iteration % WINDOW == 0 and iteration > 0:
            falling = lowest <= before * (1 - tolerance)  # always, at a tolerance of 0
            running, states, active, gram = running[falling], states[falling], active[falling], gram[falling]
            lowest, loss, step = lowest[falling], loss[falling], step[falling]
            before = lowest.clone()
            if len(running) == 0:
                advance(len(best) * iterations)
                return
        # The gradient of ||G|| with G = C C^T - t I is 2 G C / ||G||.
        gram.mul_((-2 * rate / loss.clamp_min(_TINY)).view(-1, 1, 1))
        states.addcmul_(torch.bmm(gram, states, out=step), active)


class _Tally:
    """Sums the progress of the threads, and reports it from one thread at a time."""

    def __init__(self, total: int, report: Reporter) -> None:
        self.total, self.report = total, report
        self.done, self.lock = 0, threading.Lock()

    def part(self) -> Callable[[int], None]:
        """Return a function to call with the number of iterations that one part of the work has done."""
        known = 0

        def advance(done: int) -> None:
            nonlocal known
            with self.lock:
                if done > known:
                    self.done += done - known
                    known = done
                    self.report("ai", self.done, self.total)

        return advance


def _wide(matrix: torch.Tensor, like: torch.Tensor | None = None) -> torch.Tensor:
    """Return the matrix or its transpose, whichever is wide; with `like`, undo that for a matrix of its shape."""
    rows, cols = matrix.shape if like is None else like.shape
    return matrix if rows <= cols else matrix.T


def _packed(matrices: Sequence[torch.Tensor], most: int) -> Iterator[list[int]]:
    """Yield batches of indices of matrices with one shape and dtype, of up to `most` entries."""
    kinds: dict[tuple[torch.Size, torch.dtype], list[int]] = {}
    for index, matrix in enumerate(matrices):
        kinds.setdefault((_wide(matrix).shape, matrix.dtype), []).append(index)
    # Expensive batches first, so that no thread starts one when the others are done.
    for (shape, _), indices in sorted(kinds.items(), key=lambda kind: -kind[0][0].numel()):
        size = max(1, most // max(1, shape.numel()))
        yield from (indices[first : first + size] for first in range(0, len(indices), size))


def _in_threads(work: Callable[[list[int]], None], jobs: Iterator[list[int]], stopped: threading.Event) -> None:
    """Run the jobs in as many threads as torch uses, each with single-threaded operations.

    Weights outside the optimum's support become denormal numbers, where arithmetic is several times slower. They are
    flushed to zero in these threads only: the setting belongs to a thread and ends with it.
    """
    pool = ThreadPoolExecutor(torch.get_num_threads(), initializer=partial(torch.set_flush_denormal, True))
    with on_threads(1), pool:  # new threads inherit the setting
        try:
            for _ in pool.map(work, jobs):
                pass
        finally:
            stopped.set()  # after an interrupt, stop the other threads
