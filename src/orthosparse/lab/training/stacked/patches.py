"""How our Triton kernels compute a convolution: in patches of outputs, from windows, with kernels laid out for them."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import prod

from torch import Tensor

from orthosparse.lab.models.stages import Grid

Pair = tuple[int, int]


@dataclass(frozen=True)
class Tiling:
    """A convolution in patches; pairs are (height, width).

    The window of patch ``(i, j)`` starts at the pixel ``step * (i, j) - padding``.

    Attributes:
        in_size, out_size: of the maps; patches divide that of the outputs.
        patch: outputs that are computed together.
        window: pixels that these depend on.
    """

    in_size: Pair
    out_size: Pair
    patch: Pair
    step: Pair
    padding: int
    window: Pair

    @property
    def patches(self) -> int:
        """Patches of an image."""
        return prod(self.out_size) // prod(self.patch)

    def constants(self) -> dict[str, int]:
        """Return the sizes by the names that they have in the kernels."""
        pairs = {
            "HEIGHT WIDTH": self.in_size,
            "OUT_HEIGHT OUT_WIDTH": self.out_size,
            "PATCH_HEIGHT PATCH_WIDTH": self.patch,
            "STEP_HEIGHT STEP_WIDTH": self.step,
            "WINDOW_HEIGHT WINDOW_WIDTH": self.window,
        }
        sizes = {name: size for names, pair in pairs.items() for name, size in zip(names.split(), pair, strict=True)}
        return sizes | {"PADDING": self.padding}


def tiling_forward(grid: Grid, patch: Pair) -> Tiling:
    """Return the tiling of a convolution."""
    height, width = patch
    window = ((height - 1) * grid.stride + grid.kernel, (width - 1) * grid.stride + grid.kernel)
    out_size, step = (grid.out_height, grid.out_width), (height * grid.stride, width * grid.stride)
    return Tiling((grid.height, grid.width), out_size, patch, step, grid.kernel // 2, window)


def tiling_backward(grid: Grid, patch: Pair) -> Tiling:
    """Return the tiling of the convolution that computes the gradient of the input.

    The stride is 1, or 2 with even maps and kernels of 3 x 3 or 1 x 1. With stride 2, pixels whose positions are equal
    modulo 2 depend on the same taps, so that the patches are 2 x 2.
    """
    if grid.stride == 1:
        return tiling_forward(grid, patch)
    side = -(-grid.kernel // 2)
    return Tiling((grid.out_height, grid.out_width), (grid.height, grid.width), (2, 2), (1, 1), 0, (side, side))


def spread_kernels(kernels: Tensor, tiling: Tiling, stride: int, out: Tensor) -> None:
    """Write the kernel of each output of a patch to the pixels of the window that it depends on; the rest stays zero.

    Args:
        kernels: ``[layers, networks, out, side, side, in]``; for the backward pass, flipped and with `out` and `in`
            exchanged.
        stride: of the convolution; for the backward pass its negative, as the outputs are then that close.
        out: ``[layers, networks, numbers of a window, numbers of a patch]``.
    """
    layers, networks, outputs, side, _, inputs = kernels.shape
    laid_out = out.view(layers, networks, *tiling.window, inputs, *tiling.patch, outputs)
    for row, column in product(range(tiling.patch[0]), range(tiling.patch[1])):
        window_rows, tap_rows = _overlap(row, tiling.window[0], side, tiling.padding, stride)
        window_columns, tap_columns = _overlap(column, tiling.window[1], side, tiling.padding, stride)
        target = laid_out[:, :, window_rows, window_columns, :, row, column]
        target.copy_(kernels[:, :, :, tap_rows, tap_columns].permute(0, 1, 3, 4, 5, 2))


def _overlap(output: int, window: int, side: int, padding: int, stride: int) -> tuple[slice, slice]:
    """Return the pixels of a window, along one dimension, on which an output of the patch depends, and their taps."""
    pairs = list(_pixels_and_taps(output, window, side, padding, stride))
    if not pairs:
        return slice(0, 0), slice(0, 0)
    (first, first_tap), (last, last_tap) = pairs[0], pairs[-1]
    tap_step = max(1, (last_tap - first_tap) // max(1, last - first))
    return slice(first, last + 1), slice(first_tap, last_tap + 1, tap_step)


def _pixels_and_taps(output: int, window: int, side: int, padding: int, stride: int) -> Iterator[Pair]:
    for pixel in range(window):
        flipped = side - 1 - side // 2 - output - stride * (pixel - padding)
        tap = pixel - output * stride if stride > 0 else flipped
        if 0 <= tap < side:
            yield pixel, tap
