"""Runs of equal layers by our own GPU kernels: fewer launches and fewer trips to memory than torch's operations need.

They take runs of square layers with tanh whose width is a power of two: linear ones, and convolutions of stride 1. On
other layers, in float64 and without Triton, torch's own operations remain.
"""

import os
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from orthosparse.lab.training.ensemble import pointwise
from orthosparse.lab.training.ensemble.plain import Cast, Run
from orthosparse.lab.training.ensemble.slab import Leaf, Slab
from orthosparse.lab.training.ensemble.stages import Grid, Stage
from orthosparse.lab.training.ensemble.ways import Ways

_WIDTHS = (16, 32, 64, 128)
# Below so many programs a GPU is not full: rather more of them, each with fewer rows.
_FULL = 100
# Rows of a program, warps, and stages of the pipeline, of linear layers; of maps, output and input channels come second
# and third. By the bytes of a number where they differ. As measured fastest on an H200.
_LINEAR, _LINEAR_BACK, _LINEAR_FEW = (64, 8, 3), (32, 4, 2), (16, 4, 2)
_ROOMY = 230_400  # bytes that the first of them takes inside a multiprocessor
_MAPS = {2: (128, 128, 64, 8, 3), 4: (128, 64, 64, 8, 3)}
_MAPS_FEW = {2: (64, 128, 128, 4, 3), 4: (64, 64, 64, 4, 3)}
_WEIGH, _WEIGH_TURNED = {2: (64, 8, 3), 4: (32, 8, 3)}, (16, 8, 4)
_DESCEND, _GROUP = (1024, 4), 8
_REGISTERS = (
    128  # of a thread of 256: two programs then have room in a multiprocessor, and one loads while one computes
)
# Said at every launch: what Triton does by itself differs between its versions.
_FUSION = {"enable_fp_fusion": True}


def run_of(slab: Slab, dtype: torch.dtype, ways: Ways) -> Run:
    """Return the run of a slab by our kernels, where it fits them and `ways` has them; else the plain one."""
    if not chosen(ways, slab.weight.value.device) or not fits(slab.stage, dtype):
        return Run(slab, dtype, ways)
    kind = FusedMatrices if slab.stage.grid is None else FusedMaps
    return kind(slab, dtype, ways)


def chosen(ways: Ways, device: torch.device) -> bool:
    """Return whether our kernels are to be used.

    Raises:
        ValueError: they are asked for, and there is no Triton or no GPU.
    """
    there, on_gpu = find_spec("triton") is not None, device.type == "cuda"
    if ways.fused is None:
        return there and on_gpu
    # Asked for, they run anywhere by Triton's interpreter, slowly.
    if ways.fused and not (there and (on_gpu or os.environ.get("TRITON_INTERPRET") == "1")):
        raise ValueError(f"fused: expected Triton and a GPU; got {device}{'' if there else ', and no Triton'}")
    return ways.fused


def fits(stage: Stage, dtype: torch.dtype) -> bool:
    """Return whether our kernels compute such layers."""
    square = stage.inputs == stage.outputs and stage.inputs in _WIDTHS and stage.blocks is None
    strided = stage.grid is not None and stage.grid.stride != 1
    return square and not strided and stage.activation == "tanh" and dtype in (torch.float32, torch.bfloat16)


class FusedMatrices(Run):
    """Linear layers: all of them in one launch ahead, and a chunk of them in one back; what is kept is turned."""

    def __init__(self, slab: Slab, dtype: torch.dtype, ways: Ways) -> None:
        super().__init__(slab, dtype, ways)
        self._seen = -1

    def cast(self) -> Cast:
        """Return weights and biases in the type of the products; the updates keep a copy that is rounded to TF32."""
        value = self.slab.weight.value
        if not _rounds(value) or self.dtype != torch.float32:
            return super().cast()
        if self.slab.rounded is None:
            self.slab.rounded = torch.empty_like(value)
        if self._seen != value._version:  # our kernels do not count; whoever else writes does
            self.slab.rounded.copy_(rounded(value))
            self._seen = value._version
        return self.slab.rounded, self.slab.bias.value

    def last_of(self, outputs: Tensor) -> Tensor:
        """Return the outputs of the last layer as others have them."""
        return outputs[-1].transpose(1, 2).contiguous()

    def advance(self, x: Tensor, start: int, stop: int, cast: Cast) -> Tensor:
        """Return the outputs of layer ``stop - 1`` for the inputs of layer `start`."""
        out = self.empty(x)
        self._ahead(x, out, start, stop, cast, keep=False)
        return out

    def samples(self, x: Tensor, start: int, stop: int, cast: Cast) -> tuple[Tensor, Tensor]:
        """Return the inputs and the outputs of some layers, ``[layers, members, width, batch]``."""
        both = x.new_empty(stop - start + 1, len(x), x.shape[2], x.shape[1])
        both[0].copy_(rounded(x.transpose(1, 2)))
        self._ahead(x, both[1:], start, stop, cast, keep=True)
        return both[:-1], both[1:]

    def chunk(
        self, grad: Tensor, inputs: Tensor, outputs: Tensor, weights: Tensor, start: int, *, last: bool
    ) -> Tensor:
        """Go back through some layers, fill their gradients, and return that of their input."""
        del last  # the gradient of the input is the last of what the kernel has anyway
        layers, (members, rows, width) = len(outputs), grad.shape
        before, found = torch.empty_like(outputs), torch.empty_like(grad)
        tile, warps, stages = _LINEAR_BACK if members * rows >= _FULL * _LINEAR_BACK[0] else _LINEAR_FEW
        _kernels().chain_back[(-(-rows // tile), members)](
            grad.contiguous(), outputs, weights[start:], before, found, rows, layers,
            WIDTH=width, ROWS=tile, PRECISION=_precision(), STAGES=stages, num_warps=warps, **_FUSION,
        )  # fmt: skip
        _weigh(self.slab, before, inputs, start, rows, turned=True)
        return found

    def measure(self) -> None:
        """Take the norms of the gradients of biases; those of weights are taken, and masked, as they are made."""
        _measure_biases(self.slab)

    def _ahead(self, x: Tensor, out: Tensor, start: int, stop: int, cast: Cast, *, keep: bool) -> None:
        members, rows, width = x.shape
        tile, warps, stages = _ahead_sizes(x)
        _kernels().chain_ahead[(-(-rows // tile), members)](
            x.contiguous(), cast[0][start:], cast[1][start:], out, rows, stop - start,
            KEEP=keep, WIDTH=width, ROWS=tile, PRECISION=_precision(), STAGES=stages, num_warps=warps, **_FUSION,
        )  # fmt: skip


class FusedMaps(Run):
    """Convolutions: one launch a layer, activation and its derivative included; padding is never laid out."""

    def cast(self) -> Cast:
        """Return weights and biases in the type of the products."""
        weights, biases = super().cast()
        return rounded(weights), biases

    def advance(self, x: Tensor, start: int, stop: int, cast: Cast) -> Tensor:
        """Return the outputs of layer ``stop - 1`` for the inputs of layer `start`."""
        x = rounded(x)
        for layer in range(start, stop):
            out = self.empty(x)
            self._convolve(x, cast[0][layer], cast[1][layer], x, out, back=False)
            x = out
        return x

    def samples(self, x: Tensor, start: int, stop: int, cast: Cast) -> tuple[Tensor, Tensor]:
        """Return the inputs and the outputs of some layers, each in one tensor."""
        both = x.new_empty(stop - start + 1, *x.shape)
        both[0].copy_(rounded(x))
        for place in range(stop - start):
            layer = start + place
            self._convolve(both[place], cast[0][layer], cast[1][layer], x, both[place + 1], back=False)
        return both[:-1], both[1:]

    def chunk(
        self, grad: Tensor, inputs: Tensor, outputs: Tensor, weights: Tensor, start: int, *, last: bool
    ) -> Tensor:
        """Go back through some layers, fill their gradients, and return that of their input (unless `last`)."""
        before, found = torch.empty_like(outputs), torch.empty_like(grad)
        pointwise.unbend(grad, outputs[-1], before[-1], self.stage.activation)
        before[-1].copy_(rounded(before[-1]))
        for place in reversed(range(1, len(outputs))):
            self._convolve(
                before[place], weights[start + place], None, outputs[place - 1], before[place - 1], back=True
            )
        if not last:
            self._convolve(before[0], weights[start], None, None, found, back=True)
        assert self.stage.grid is not None, "a convolution"
        _weigh(self.slab, before, inputs, start, grad.shape[1] * self.stage.grid.height * self.stage.grid.width)
        self.sum_up(before, start)
        return found

    def measure(self) -> None:
        """Take the norms of the gradients of biases; those of weights are taken, and masked, as they are made."""
        _measure_biases(self.slab)

    def _convolve(
        self, x: Tensor, weight: Tensor, bias: Tensor | None, y: Tensor | None, out: Tensor, *, back: bool
    ) -> None:
        grid, width = self.stage.grid, self.stage.outputs
        assert grid is not None, "a convolution"
        members, rows = len(x), x.shape[1] * grid.height * grid.width
        sizes = _MAPS if members * rows >= _FULL * _MAPS[2][0] else _MAPS_FEW
        tile, columns, inner, warps, stages = sizes[x.element_size()]
        columns, inner = min(columns, width), min(inner, width)
        _kernels().convolve[(-(-rows // tile), width // columns, members)](
            x, weight, weight if bias is None else bias, out if y is None else y, out, rows,
            BACK=back, BENT=y is not None, **_shape(grid), WIDTH=width, ROWS=tile, COLUMNS=columns, INNER=inner,
            PRECISION=_precision(), STAGES=stages, num_warps=warps, **_FUSION,
        )  # fmt: skip


def busy_of(leaf: Leaf) -> Tensor | None:
    """Return which groups of 8 entries, 32 bytes, have one that a mask lets through; None where that saves nothing."""
    if leaf.off is None or leaf.off[0, 0].numel() % _GROUP:
        return None
    return leaf.off.view(*leaf.off.shape[:2], -1, _GROUP).all(3).logical_not_().view(torch.uint8)


def descend(
    value: Tensor,
    gradient: Tensor,
    momentum: Tensor,
    dead: Tensor,
    rate: Tensor,
    rule: tuple[float, float, bool],
    *,
    busy: Tensor | None = None,
    copy: Tensor | None = None,
) -> None:
    """Do what `pointwise.descend` does, in one pass; values are ``[layers, members, entries]``.

    Args:
        busy: see `busy_of`; what lies off the masks is zero and stays so.
        copy: gets the values, rounded to TF32.
    """
    layers, members, size = value.shape
    decay, inertia, nesterov = rule
    block, warps = _DESCEND
    _kernels().descend[(layers * members, -(-size // block))](
        value, gradient, momentum, value if copy is None else copy, value if busy is None else busy,
        dead.view(-1).view(torch.uint8), rate.view(-1), members, size, decay, inertia,
        NESTEROV=nesterov, ROUNDED=copy is not None, MASKED=busy is not None, GROUP=_GROUP, BLOCK=block,
        num_warps=warps, **_FUSION,
    )  # fmt: skip


def _kernels() -> Any:
    """Return the kernels: Triton is imported where they are used, and nowhere else."""
    from orthosparse.lab.training.ensemble import kernels

    return kernels


def _weigh(slab: Slab, before: Tensor, inputs: Tensor, start: int, rows: int, *, turned: bool = False) -> None:
    """Fill the gradients of the weights of some layers, zero off masks, and their norms; if `turned`, of biases too."""
    stage, leaf = slab.stage, slab.weight
    assert leaf.off is not None, "weights have masks"
    grid = stage.grid or Grid(1, 1, 1, 1)
    layers, members, taps = len(before), before.shape[1], grid.kernel**2
    tile, warps, stages = _WEIGH_TURNED if turned else _WEIGH[before.element_size()]
    squares = torch.empty(layers, members, taps, dtype=torch.float32, device=before.device)
    stop = start + layers
    _kernels().weigh[(taps, layers * members)](
        before, inputs, leaf.off[start:stop].view(torch.uint8), leaf.gradient[start:stop],
        slab.bias.gradient[start:stop], squares, rows,
        TURNED=turned, **_shape(grid), WIDTH=stage.outputs, ROWS=tile, PRECISION=_precision(), STAGES=stages,
        num_warps=warps, maxnreg=_REGISTERS, **_FUSION,
    )  # fmt: skip
    torch.sqrt(squares.sum(2), out=leaf.norms[start:stop])


def _measure_biases(slab: Slab) -> None:
    torch.linalg.vector_norm(slab.bias.gradient, dim=2, out=slab.bias.norms)


def _shape(grid: Grid) -> dict[str, int]:
    return {"HEIGHT": grid.height, "WIDE": grid.width, "SIDE": grid.kernel}


def _ahead_sizes(x: Tensor) -> tuple[int, int, int]:
    """Return rows, warps and stages for samples ``[members, rows, width]``."""
    roomy = x.device.type != "cuda" or _shared(x.device) >= _ROOMY
    sizes = _LINEAR if roomy else _LINEAR_BACK
    return sizes if x.shape[0] * x.shape[1] >= _FULL * sizes[0] else _LINEAR_FEW


@cache
def _shared(device: torch.device) -> int:
    """Return how many bytes a program may have inside a multiprocessor."""
    return int(getattr(torch.cuda.get_device_properties(device), "shared_memory_per_block_optin"))  # noqa: B009 - untyped


def rounded(tensor: Tensor) -> Tensor:
    """Return float32 rounded to TF32, to nearest, where products are computed in that; else the tensor itself.

    Example:
        >>> from orthosparse.lab.training.devices import arithmetic
        >>> with arithmetic("tf32"):
        ...     rounded(torch.tensor([1.0, 1 + 2**-11, 1 + 2**-10 + 2**-12])).sub(1).mul(2**10).tolist()
        [0.0, 1.0, 1.0]
    """
    if not _rounds(tensor):
        return tensor
    return ((tensor.contiguous().view(torch.int32) + 0x1000) & -0x2000).view(torch.float32)


def _rounds(tensor: Tensor) -> bool:
    return tensor.dtype == torch.float32 and _precision() == "tf32"


def _precision() -> str:
    """Return how float32 products are to be computed, as `devices.arithmetic` has set it."""
    return "tf32" if torch.backends.cuda.matmul.fp32_precision == "tf32" else "ieee"
