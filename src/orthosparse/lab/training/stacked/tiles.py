"""How our kernels see a convolution: patches of outputs, the windows they look through, and kernels laid out so."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import prod

from torch import Tensor

from orthosparse.lab.models.stages import Grid

Pair = tuple[int, int]


@dataclass(frozen=True)
class Tiling:
    """A convolution in patches: the window of a patch begins at ``step * place - before``, down and across.

    Attributes:
        seen, given: the map that is looked at, and the one that is computed, which patches fill without a rest.
        patch: outputs that are computed together.
        window: pixels that these see together.
    """

    seen: Pair
    given: Pair
    patch: Pair
    step: Pair
    before: int
    window: Pair

    @property
    def patches(self) -> int:
        """Patches of a image."""
        return prod(self.given) // prod(self.patch)

    def constants(self) -> dict[str, int]:
        """Return all of it by the names that the kernels have for it."""
        pairs = {"HEIGHT WIDE": self.seen, "OUT_HEIGHT OUT_WIDE": self.given, "DOWN ACROSS": self.patch}
        pairs |= {"STEP_DOWN STEP_ACROSS": self.step, "LINES COLUMNS": self.window}
        sizes = {name: size for names, pair in pairs.items() for name, size in zip(names.split(), pair, strict=True)}
        return sizes | {"BEFORE": self.before}


def tiling_forward(grid: Grid, patch: Pair) -> Tiling:
    """Return the view of a convolution."""
    down, across = patch
    window = ((down - 1) * grid.stride + grid.kernel, (across - 1) * grid.stride + grid.kernel)
    given, step = (grid.out_height, grid.out_width), (down * grid.stride, across * grid.stride)
    return Tiling((grid.height, grid.width), given, patch, step, grid.kernel // 2, window)


def tiling_backward(grid: Grid, patch: Pair) -> Tiling:
    """Return the view of the convolution that takes a gradient back: of stride 1, or of 2 on even maps by 3 taps or 1.

    With stride 2 the pixels that share a place modulo 2 meet the same taps, so that squares of four are the patches.
    """
    if grid.stride == 1:
        return tiling_forward(grid, patch)
    side = -(-grid.kernel // 2)
    return Tiling((grid.out_height, grid.out_width), (grid.height, grid.width), (2, 2), (1, 1), 0, (side, side))


def spread_kernels(kernels: Tensor, view: Tiling, stride: int, out: Tensor) -> None:
    """Write, for every output of a patch, the kernel to the pixels of the window that it sees; the rest stays zero.

    Args:
        kernels: ``[layers, members, out, side, side, in]``; in the backward pass they are flipped, and `out` and `in`
            have changed places.
        stride: in the forward pass that of the convolution. In the backward pass outputs lie as close as its stride
            says, and `stride` is minus that.
        out: ``[layers, members, numbers of a window, numbers of a patch]``.
    """
    layers, members, outputs, side, _, inputs = kernels.shape
    room = out.view(layers, members, *view.window, inputs, *view.patch, outputs)
    for line, column in product(range(view.patch[0]), range(view.patch[1])):
        lines, taps_down = _meetings(line, view.window[0], side, view.before, stride)
        columns, taps_across = _meetings(column, view.window[1], side, view.before, stride)
        seen = room[:, :, lines, columns, :, line, column]
        seen.copy_(kernels[:, :, :, taps_down, taps_across].permute(0, 1, 3, 4, 5, 2))


def _meetings(output: int, window: int, side: int, before: int, stride: int) -> tuple[slice, slice]:
    """Return the pixels of a window, along one side, that an output of the patch sees, and by which taps."""
    met = list(_met(output, window, side, before, stride))
    if not met:
        return slice(0, 0), slice(0, 0)
    (first, tap), (last, end) = met[0], met[-1]
    return slice(first, last + 1), slice(tap, end + 1, max(1, (end - tap) // max(1, last - first)))


def _met(output: int, window: int, side: int, before: int, stride: int) -> Iterator[Pair]:
    for pixel in range(window):
        flipped = side - 1 - side // 2 - output - stride * (pixel - before)
        tap = pixel - output * stride if stride > 0 else flipped
        if 0 <= tap < side:
            yield pixel, tap
