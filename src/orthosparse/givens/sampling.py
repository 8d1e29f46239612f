"""Samples of the Givens sampler: one matrix, a batch, a matrix in CSR format, a partial isometry."""

import warnings
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, TypedDict, Unpack

import numpy as np
import torch
from torch import Tensor

from orthosparse.aliases import BackendName, StartName, StopName
from orthosparse.checks import check_at_least, check_count, check_dtype, describe
from orthosparse.givens.task import Task, make_task
from orthosparse.randomness import draw_seed
from orthosparse.registry import lookup

_KERNEL = "orthosparse.givens._kernel"


class Law(TypedDict, total=False):
    """The keywords of `sample` that determine the distribution of the matrix."""

    stop: StopName | str
    angle: float | None
    start: StartName | str
    rows: tuple[int, int] | None


def sample(
    shape: tuple[int, int],
    count: int,
    *,
    stop: StopName | str = "exact",
    angle: float | None = None,
    start: StartName | str = "identity",
    rows: tuple[int, int] | None = None,
    generator: torch.Generator | None = None,
    dtype: torch.dtype = torch.float64,
    threads: int = 1,
    backend: BackendName | str = "auto",
    out: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return an orthogonal matrix with `count` active entries, and their mask.

    `count` must be at least min(shape). Full density is reached by rotations too; the result is then close to, but not
    exactly, uniformly distributed over the orthogonal matrices.

    Args:
        stop: "exact" skips pairs that would overshoot; when many in a row did, the missing entries become active with
            value zero, at random positions. "first" is the first state with at least `count` non-zeros. "closest"
            is that state or the one before, whichever is closer. The last two do not meet the count exactly.
        angle: angle of every rotation, in radians; None draws each uniformly from [0, 2 pi). With a fixed angle some
            active entries may be zero (two rotations of the same columns by pi / 4 make one by pi / 2).
        start: "identity" is the paper's [I 0]; "permuted" is a random signed permutation of it.
        rows: (first, last), the range of rows to return, without `last`. Shards of the same seed make up the whole
            matrix, bit for bit.
        generator: the seed is drawn from it; None takes one from the operating system.
        dtype: dtype of the values. All arithmetic is in float64, and cast at the end.
        threads: number of threads of the kernel; the bits do not depend on it.
        backend: "kernel" is compiled, "python" is not; "auto" takes the kernel if it was built. Both give the same
            mask, and values that agree to 1e-15.
        out: a matrix to write the values to, which is also returned; `can_hold` says whether a matrix is suitable.

    Raises:
        TypeError, ValueError: an argument is invalid.

    Example:
        >>> weight, mask = sample((40, 60), 300, generator=torch.Generator().manual_seed(0))
        >>> int(mask.sum()), bool((weight[~mask] == 0).all())
        (300, True)
        >>> torch.allclose(weight @ weight.T, torch.eye(40, dtype=torch.float64), atol=1e-12)
        True
    """
    task = make_task(shape, stop=stop, angle=angle, start=start, rows=rows)
    counts = [_check(shape, count)]
    draws: dict[str, Any] = {"generator": generator, "dtype": dtype, "threads": threads, "backend": backend}
    if out is None:
        values, mask = drawn(task, counts, **draws)
    else:
        if rows is not None or tuple(out.shape) != tuple(shape) or out.dtype != dtype or not can_hold(out):
            raise ValueError(f"out: expected a plain {dtype} matrix of {shape} for all rows; got {describe(out)}")
        # A column-major matrix is the transpose of a row-major one, with the same draws.
        by_rows = out.is_contiguous()
        task = task if by_rows else task._replace(tall=not task.tall, last=shape[1])
        values, mask = drawn(task, counts, out=(out if by_rows else out.T)[None], **draws)
        values, mask = (values, mask) if by_rows else (values.mT, mask.mT)
    return values[0], mask[0]


def can_hold(matrix: Tensor) -> bool:
    """Return whether `sample` can write into `matrix`: float32 or float64 on the CPU, in row- or column-major order.

    Example:
        >>> can_hold(torch.empty(3, 4)), can_hold(torch.empty(3, 4).T), can_hold(torch.empty(3, 4)[:, ::2])
        (True, True, False)
    """
    real = matrix.device.type == "cpu" and matrix.dtype in (torch.float32, torch.float64)
    return real and matrix.dim() == 2 and (matrix.is_contiguous() or matrix.T.is_contiguous())


def sample_batch(
    batch: int,
    shape: tuple[int, int],
    count: int | Sequence[int],
    *,
    generator: torch.Generator | None = None,
    dtype: torch.dtype = torch.float64,
    threads: int = 1,
    backend: BackendName | str = "auto",
    **law: Unpack[Law],
) -> tuple[Tensor, Tensor]:
    """Return `batch` matrices [batch, rows, cols], and their masks.

    `count` is one number for all matrices, or a sequence with one for each. `shape`, `generator`, `dtype`, `threads`,
    `backend` and the other keywords, `law`, are those of `sample`. The first matrix is what `sample` returns, and no
    matrix depends on how many follow it.

    Example:
        >>> values, masks = sample_batch(3, (8, 8), [8, 16, 64])
        >>> masks.sum((1, 2)).tolist()
        [8, 16, 64]
    """
    task = make_task(shape, **law)
    check_at_least(batch, 0, "batch")
    counts = list(count) if isinstance(count, Sequence) else [count] * batch
    if len(counts) != batch:
        raise ValueError(f"count: expected one integer or {batch} of them, one for each matrix; got {len(counts)}")
    counts = [_check(shape, each) for each in counts]
    return drawn(task, counts, generator=generator, dtype=dtype, threads=threads, backend=backend)


def sample_csr(
    shape: tuple[int, int],
    count: int,
    *,
    generator: torch.Generator | None = None,
    dtype: torch.dtype = torch.float64,
    threads: int = 1,
    backend: BackendName | str = "auto",
    **law: Unpack[Law],
) -> Tensor:
    """Return the matrix of `sample` as a `torch.sparse_csr` tensor that stores the active entries.

    `shape`, `generator`, `dtype`, `threads`, `backend` and the other keywords, `law`, are those of `sample`. Time and
    memory grow with `count`, not with the product of the shape.

    Example:
        >>> weight = sample_csr((100_000, 100_000), 120_000, generator=torch.Generator().manual_seed(0))
        >>> weight.shape, weight.values().numel()
        (torch.Size([100000, 100000]), 120000)
    """
    task = make_task(shape, **law)
    check_dtype(dtype)
    threads = check_at_least(threads, 1, "threads")
    kernel, wanted, seed = _kernel(backend), _check(shape, count), draw_seed(generator)
    if kernel is None:
        from orthosparse.givens import python_backend  # imported only if used

        parts: Iterable[Any] = python_backend.csr(task, wanted, seed)
    else:
        kinds = np.int64, np.int64, np.float64
        parts = map(np.frombuffer, kernel.csr(*task, seed, wanted, threads), kinds)
    starts, cols, values = (torch.from_numpy(part) for part in parts)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support", category=UserWarning)
        return torch.sparse_csr_tensor(
            starts, cols, _cast(values, dtype), task.shape, device="cpu", check_invariants=False
        )


def partial(
    shape: tuple[int, int],
    count: int,
    *,
    start: StartName | str = "identity",
    generator: torch.Generator | None = None,
    dtype: torch.dtype = torch.float64,
) -> tuple[Tensor, Tensor]:
    """Return a partial isometry with `count` entries, at most min(shape), and its mask.

    The matrix keeps `count` of the entries of the start, and the rest is zero. It has `count` singular values of 1, and
    all others are 0: it preserves the norm of whatever it does not annihilate. `start`, `generator` and `dtype` are
    those of `sample`.

    Example:
        >>> values, mask = partial((6, 4), 3, start="permuted")
        >>> torch.linalg.svdvals(values).tolist()
        [1.0, 1.0, 1.0, 0.0]
    """
    task = make_task(shape, start=start)
    dtype, count = check_dtype(dtype), check_count(count, shape, floor=0, ceiling=task.height)
    from orthosparse.givens import plan  # not needed by the kernel

    rows, cols, signs = plan.scattered_start(task, draw_seed(generator))
    values = torch.zeros(task.height, task.width, dtype=dtype, device="cpu")
    values[rows[:count], cols[:count]] = torch.tensor(signs[:count], dtype=dtype, device="cpu")
    values = values.T.contiguous() if task.tall else values
    return values, values != 0


@cache
def has_kernel() -> bool:
    """Return whether the compiled kernel was built."""
    return find_spec(_KERNEL) is not None


def drawn(
    task: Task,
    counts: list[int],
    *,
    generator: torch.Generator | None,
    dtype: torch.dtype,
    threads: int,
    backend: str,
    out: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return one matrix of a task for each count, [batch, rows, cols], and their masks; values go to `out` if given."""
    check_dtype(dtype)
    threads = check_at_least(threads, 1, "threads")
    kernel, seed = _kernel(backend), draw_seed(generator)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    values = torch.empty(len(counts), *task.shape, dtype=wide, device="cpu") if out is None else out
    mask = torch.empty(len(counts), *task.shape, dtype=torch.bool, device="cpu")
    if kernel is None:
        from orthosparse.givens import python_backend  # imported only if used

        python_backend.fill(task, counts, seed, values, mask)
    else:
        kernel.fill(*task, seed, np.array(counts, dtype=np.int64), values.numpy(), mask.numpy(), threads)
    return _cast(values, dtype), mask


def _cast(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Cast as the kernel does, which writes float64 or float32: 16-bit types are cast from float32."""
    return values if dtype == values.dtype else values.to(torch.float32).to(dtype)


def _check(shape: tuple[int, int], count: int) -> int:
    return check_count(count, shape, floor=min(shape), ceiling=shape[0] * shape[1])


def _kernel(backend: str) -> Any:
    """Return the compiled kernel, or None for the Python backend."""
    if lookup({"auto": not has_kernel(), "kernel": False, "python": True}, backend, "backend"):
        return None
    if not has_kernel():
        raise ValueError(
            "backend: the compiled kernel is not built; install a C++ compiler and reinstall orthosparse from source "
            '("pip install --no-binary orthosparse --force-reinstall orthosparse"), or use "python" or "auto"'
        )
    return import_module(_KERNEL)
