"""The operations of residual networks by our own GPU kernels: fewer launches and fewer trips to memory than torch's."""

import math
from dataclasses import replace
from itertools import product

import torch
from torch import Tensor
from torch.nn import functional

from orthosparse.lab.training.ensemble import fused, map_launches
from orthosparse.lab.training.ensemble.layout import Layout
from orthosparse.lab.training.ensemble.map_launches import shared_ahead, shared_back, shared_weights
from orthosparse.lab.training.ensemble.maps import After, Maps, grid_of
from orthosparse.lab.training.ensemble.normed import Normed
from orthosparse.lab.training.ensemble.products import spread_out
from orthosparse.lab.training.ensemble.stages import Grid
from orthosparse.lab.training.ensemble.views import View, lay_out
from orthosparse.lab.training.ensemble.ways import Ways

_WIDTHS = (16, 32, 64)
_LEAST = 4  # channels that are read in one piece


def maps_of(layout: Layout, slabs: list[Normed], dtype: torch.dtype, ways: Ways) -> Maps:
    """Return the operations by our kernels, where they fit and `ways` has them; else torch's own.

    Raises:
        ValueError: ways that residual networks do not have.
    """
    if ways.convolution == "gather":
        raise ValueError("convolution: expected native for residual networks; got gather")
    if not fused.chosen(ways, slabs[0].weight.value.device) or not fits(layout, dtype):
        return Maps(dtype)
    return OwnMaps(dtype)


def fits(layout: Layout, dtype: torch.dtype) -> bool:
    """Return whether our kernels compute such networks."""
    stem = layout.stages[layout.stem.stage][0]
    inner = all(stage.inputs in _WIDTHS for stage, _ in layout.stages if stage is not stem)
    widths = inner and all(stage.outputs in _WIDTHS for stage, _ in layout.stages) and stem.inputs <= _LEAST
    return widths and dtype in (torch.float32, torch.bfloat16)


class OwnMaps(Maps):
    """The operations of a residual network, one launch each; sums are ``[members, tiles, 2, channels]`` here."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__(dtype)
        # Kept: a captured graph goes on with those that it saw, also when a shorter batch has needed others.
        self._ahead: dict[Normed, Tensor] = {}
        self._back: dict[Normed, Tensor] = {}
        self._products: dict[tuple[Normed, tuple[int, ...]], Tensor] = {}
        self._last: dict[Normed, Tensor] = {}

    def refresh(self, slab: Normed) -> None:
        """Lay the kernels of a slab out for patches, as they are on the way ahead and back."""
        grid, stage, value = grid_of(slab), slab.stage, slab.weight.value
        kernels = value.view(*value.shape[:3], grid.kernel, grid.kernel, stage.inputs)
        kernels = functional.pad(kernels, (0, _missing(slab)))
        self._lay_out(self._ahead, slab, kernels, shared_ahead(grid, stage.outputs)[0], grid.stride)
        if not _missing(slab):  # nothing goes back to the pictures
            around, turned = _around(grid), kernels.flip(3, 4).transpose(2, 5)
            self._lay_out(self._back, slab, turned, shared_back(around, stage.inputs)[0], -around.stride)

    def _lay_out(self, laid: dict[Normed, Tensor], slab: Normed, kernels: Tensor, view: View, stride: int) -> None:
        if slab not in laid:
            layers, members, outputs, _, _, inputs = kernels.shape
            shape = (layers, members, math.prod(view.window) * inputs, math.prod(view.patch) * outputs)
            laid[slab] = kernels.new_zeros(shape, dtype=self.dtype)
        lay_out(kernels, view, stride, laid[slab])

    def prepared(self, x: Tensor, slab: Normed) -> Tensor:
        """Return the samples with channels of zeros added to those that a network gets."""
        return functional.pad(x, (0, _missing(slab)))

    def convolve(self, x: Tensor, slab: Normed, layer: int, *, counted: bool) -> tuple[Tensor, Tensor | None]:
        """Return the convolution of the samples, and if `counted` the sums of it and of its squares."""
        width, shared = slab.stage.outputs, shared_ahead(grid_of(slab), slab.stage.outputs)
        return map_launches.convolve(x, self._ahead[slab][layer], shared, width, counted=counted)

    def convolve_back(
        self, grad: Tensor, slab: Normed, layer: int, *, add: Tensor | None = None, after: After | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Return the gradient of what a convolution saw; see `Maps`."""
        grid, width = grid_of(slab), slab.stage.inputs
        if (around := _around(grid)) != grid:
            pictures = grad.shape[1] // (grid.out_height * grid.out_width)
            spread = spread_out(grad.view(len(grad), pictures, -1), grid, grad.shape[2])
            grad = spread.view(len(grad), -1, grad.shape[2])
        shared, kernel = shared_back(around, width), self._back[slab][layer]
        return map_launches.convolve_back(grad, kernel, shared, width, add, after)

    def weigh(self, slab: Normed, layer: int, grad: Tensor, x: Tensor) -> None:
        """Write the product of every share of the patches with what they saw."""
        shared = shared_weights(grid_of(slab), slab.stage.outputs)
        shape = map_launches.products_shape(grad, x, shared)
        if (slab, shape) not in self._products:
            made = torch.empty(len(slab.stage.names), *shape, dtype=torch.float32, device=x.device)
            self._products[slab, shape] = made
        self._last[slab] = self._products[slab, shape]
        map_launches.weigh(grad, x, self._last[slab][layer], shared)

    def collect(self, slab: Normed) -> None:
        """Add up the shares, and what the outputs of a patch give to each weight; take norms."""
        grid, stage, products = grid_of(slab), slab.stage, self._last[slab].sum(2)
        view, side = shared_weights(grid, stage.outputs)[0], grid.kernel
        shape = (*products.shape[:2], *view.patch, stage.outputs, *view.window, -1)
        products = products.view(shape)[..., : stage.inputs]
        found = slab.weight.gradient.view(*products.shape[:2], stage.outputs, side, side, stage.inputs)
        for place, (line, column) in enumerate(product(*map(range, view.patch))):
            top, left = line * grid.stride, column * grid.stride
            seen = products[:, :, line, column, :, top : top + side, left : left + side]
            found.copy_(seen) if place == 0 else found.add_(seen)
        slab.measure()

    def sums(self, v: Tensor, z: Tensor) -> Tensor:
        """Return the sums of `v` and of its product with `z`, tile by tile."""
        return map_launches.unbend(v, After(v, z, "linear"), None)

    def line(self, slab: Normed, layer: int, sums: Tensor, rows: int) -> Tensor:
        """Return what a normalisation does to a batch of these sums; the slab keeps the statistics."""
        slab.samples = rows
        return map_launches.line(slab, layer, sums, rows)

    def plane(self, slab: Normed, layer: int, sums: Tensor, rows: int) -> Tensor:
        """Return what a normalisation does to gradients of these sums; fill those of its scale and shift."""
        return map_launches.plane(slab, layer, sums, rows)

    def bend(
        self, z: Tensor, line: Tensor, activation: str, other: Tensor | None = None, by: Tensor | None = None
    ) -> Tensor:
        """Return the activation of the normalised `z`, plus `other`, which may want to be normalised too."""
        return map_launches.bend(z, line, activation, other, by)

    def unbend(self, grad: Tensor, after: After) -> tuple[Tensor, Tensor]:
        """Return the gradient before an activation, and the sums of it for the normalisation before that."""
        out = torch.empty_like(grad)
        return out, map_launches.unbend(grad, after, out)

    def mix(self, v: Tensor, z: Tensor, plane: Tensor) -> Tensor:
        """Return the gradient before a normalisation, of that after it."""
        return map_launches.mix(v, z, plane)


def _around(grid: Grid) -> Grid:
    """Return the convolution whose gradient our kernels take back; others, on odd maps, have it spread out before."""
    fits = grid.stride == 2 and grid.kernel <= 3 and grid.height % 2 == 0 and grid.width % 2 == 0
    return grid if fits else replace(grid, stride=1)


def _missing(slab: Normed) -> int:
    """Return how many channels the samples of a slab lack."""
    return max(0, _LEAST - slab.stage.inputs)
