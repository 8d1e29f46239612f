"""Block-sparse linear layers against dense ones: forward and backward, break-even densities, other people's kernels.

On a GPU in bfloat16 with 16,384 tokens; a small case runs anywhere, to see that it does.
"""

from collections.abc import Callable, Iterator
from functools import partial
from subprocess import CalledProcessError
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from orthosparse import BlockLinear
from orthosparse.lab.bench.timing import Found, broken_even, captured, compared, fresh, milliseconds
from orthosparse.operators import measured

_TOKENS = 16_384
# (side, block, density): what forward + backward have to reach against the dense product.
_TARGETS = {
    (4096, 64, 0.1): 3.0,
    (4096, 64, 0.05): None,
    (4096, 128, 0.1): 3.5,
    (4096, 128, 0.05): None,
    (8192, 64, 0.1): 4.5,
    (8192, 64, 0.05): None,
    (8192, 128, 0.1): 6.0,
    (8192, 128, 0.05): 10.0,
    (4096, 32, 0.1): None,
    (4096, 32, 0.05): 2.3,
    (4096, 16, 0.05): None,
    (2048, 64, 0.1): None,
    (2048, 64, 0.05): None,
    (2048, 128, 0.1): None,
}
_CAPTURED = {(2048, 64, 0.1): 1.5}
_DENSITIES = (0.05, 0.1, 0.2, 0.35, 0.5, 0.75)
_QUICK = {(128, 16, 0.25): None}


class Case:
    """A dense and a block-sparse layer of one shape, with inputs and gradients for them."""

    def __init__(self, side: int, size: int, density: float, device: torch.device, tokens: int) -> None:
        dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
        generator = torch.Generator(device).manual_seed(0)
        draw = partial(torch.randn, generator=generator, device=device, dtype=dtype)
        self.x, self.grad = draw(tokens, side, requires_grad=True), draw(tokens, side)
        self.dense = draw(side, side, requires_grad=True)
        grid = side // size
        blocks = round(density * grid * grid)
        self.layer = BlockLinear(side, side, blocks, size, bias=False, device=device, dtype=dtype)
        self.layer.move(torch.randperm(grid * grid, generator=generator, device=device)[:blocks].sort().values)
        with torch.no_grad():
            self.layer.values.copy_(draw(blocks, size, size))

    def forwards(self) -> dict[str, Callable[[], Any]]:
        """Return the two forward passes."""
        return {"dense": self._dense, "sparse": self._sparse}

    def steps(self) -> dict[str, Callable[[], Any]]:
        """Return forward + backward of the two."""
        return {
            "dense": lambda: torch.autograd.grad(self._dense(), [self.x, self.dense], self.grad),
            "sparse": lambda: torch.autograd.grad(self._sparse(), [self.x, self.layer.values], self.grad),
        }

    def kernels(self) -> dict[str, Callable[[], Any]]:
        """Return the three products of a sparse step, one by one."""
        ops, layer = torch.ops.orthosparse, self.layer
        values, x = layer.values.detach(), self.x.detach()
        index = (layer.plan, *values.shape[:2], layer.out_features, layer.in_features)
        return {
            "forward": lambda: ops.block_linear(x, values, None, *index),
            "input grad": lambda: ops.block_input_grad(self.grad, values, *index),
            "weight grad": lambda: ops.block_weight_grad(self.grad, x, *index),
        }

    def _dense(self) -> Tensor:
        return functional.linear(self.x, self.dense)

    def _sparse(self) -> Tensor:
        return self.layer(self.x)  # type: ignore[no-any-return]


def against_dense(device: torch.device, quick: bool) -> Iterator[Found]:
    """Yield forward + backward, and forward alone, as the ratio of the times of the dense and the sparse layer."""
    for (side, size, density), target in (_QUICK if quick else _TARGETS).items():
        case = Case(side, size, density, device, 64 if quick else _TOKENS)
        name = f"{side} x {side}, block {size}, density {density}"
        first = milliseconds(case.steps(), device, rounds=1)["sparse"]
        times = milliseconds(case.steps(), device, rounds=5)
        kernels = case.kernels()
        if device.type == "cuda":
            kernels = {part: captured(call) for part, call in kernels.items()}
        parts = milliseconds(kernels, device, rounds=3)
        label, ratio, aim, detail = compared(f"{name}, step", times, target)
        detail = ", ".join([detail, *(f"{part} {taken:.3f}" for part, taken in parts.items())])
        yield label, ratio, aim, f"{detail}; first call {first:.0f} ms"
        yield compared(f"{name}, forward", milliseconds(case.forwards(), device, rounds=3))
        if device.type == "cuda":
            steps = {form: captured(step) for form, step in case.steps().items()}
            aim = _CAPTURED.get((side, size, density))
            yield compared(f"{name}, graph", milliseconds(steps, device, rounds=5), aim)


def configs(device: torch.device, quick: bool) -> Iterator[Found]:
    """Yield what was measured of each kernel's launch configurations: the first over the fastest, and all of them."""
    del device, quick
    for key, by_config in measured.items():
        times = ", ".join(f"{tuple(config)} {taken:.3f}" for config, taken in by_config.items())
        first, fastest = next(iter(by_config.values())), min(by_config.values())
        yield f"{key}", first / fastest, None, f"{times} ms"


def break_even(device: torch.device, quick: bool) -> Iterator[Found]:
    """Yield the density at which forward + backward take as long as those of the dense layer, by interpolation."""
    for side, size in [(128, 16)] if quick else [(1024, 128), (2048, 64), (2048, 128), (4096, 32), (4096, 64),
                                                 (4096, 128), (8192, 64), (8192, 128)]:  # fmt: skip
        ratios = {}
        for density in _DENSITIES:
            case = Case(side, size, density, device, 64 if quick else _TOKENS)
            steps = case.steps()
            if device.type == "cuda":
                milliseconds({"sparse": steps["sparse"]}, device, rounds=1)
                steps = {form: captured(step) for form, step in steps.items()}
            times = milliseconds(steps, device, rounds=3)
            ratios[density] = times["dense"] / times["sparse"]
        yield broken_even(f"{side} x {side}, block {size}", ratios)


def against_others(device: torch.device, quick: bool) -> Iterator[Found]:
    """Yield forward times of other people's kernels over ours, where they are installed and run.

    Each in a process of its own: a kernel that reads where it must not takes the whole process with it.
    """
    for side, size, density in [(128, 16, 0.25)] if quick else [(4096, 64, 0.1), (8192, 128, 0.1), (8192, 128, 0.05)]:
        for whose in _OTHERS:
            name = f"{side} x {side}, block {size}, density {density}, {whose}"
            given = (whose, side, size, density, str(device), 64 if quick else _TOKENS)
            code = f"from orthosparse.lab.bench.compact_blocks import against; against{given!r}"
            try:
                theirs, ours = fresh(code)
            except CalledProcessError as error:
                last = error.stderr.strip().splitlines()[-1:]
                yield name, float("nan"), None, f"does not run here: {' '.join(last)[:80]}"
                continue
            yield name, theirs / ours, 1.0, f"theirs {theirs:.3f}, ours {ours:.3f} ms, forward"


def against(whose: str, side: int, size: int, density: float, device: str, tokens: int) -> None:
    """Print the milliseconds of somebody's forward product and of ours."""
    case = Case(side, size, density, torch.device(device), tokens)
    x, theirs = case.x.detach(), _OTHERS[whose](case)
    with torch.no_grad():
        times = milliseconds({"theirs": theirs, "ours": lambda: case.layer(x)}, torch.device(device))
    print(times["theirs"], times["ours"])


def _torch_bsr(case: Case) -> Callable[[], Any]:
    from torch.sparse._triton_ops import bsr_dense_addmm

    x, weight, size = case.x.detach().T, case.layer.weight.detach(), case.layer.unit
    bsr, out = weight.to_sparse_bsr((size, size)), x.new_empty(len(weight), x.shape[1])
    return lambda: bsr_dense_addmm(out, bsr, x, beta=0)


def _stanford_stk(case: Case) -> Callable[[], Any]:
    import stk  # type: ignore[import-not-found]

    x, matrix = case.x.detach(), stk.ops.to_sparse(case.layer.weight.detach(), case.layer.unit)
    return lambda: stk.ops.dds(x, matrix.t())


def _blksprs(case: Case) -> Callable[[], Any]:
    import blksprs  # type: ignore[import-not-found]

    x, weight, size = case.x.detach()[None], case.layer.weight.detach().T.contiguous()[None], case.layer.unit
    here, there = (torch.ones(1, x.shape[1] // size, side // size, dtype=torch.bool, device=x.device)
                   for side in (weight.shape[1], weight.shape[2]))  # fmt: skip
    layout = case.layer.active.T.contiguous()[None]
    left, right = blksprs.ops.to_sparse(x, here, size), blksprs.ops.to_sparse(weight, layout, size)
    return lambda: blksprs.ops.matmul(left, here, right, layout, there, size)


_OTHERS = {"torch BSR": _torch_bsr, "stanford-stk": _stanford_stk, "blksprs": _blksprs}
