"""Convolutions padded with zeros and what lies between them, for all members at once, in torch's own operations.

Samples are ``[members, rows, channels]``, a row for every position of every picture. What a normalisation needs to know
of a batch are two sums over its rows by channel, ``[members, 2, channels]``. What it then does to a channel is a line,
``slope * z + offset``, of parts ``[2, members, channels]``; and to a gradient on its way back a plane, ``slope * v +
lean * z + offset``, of three.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from orthosparse.lab.training.ensemble.normed import Normed
from orthosparse.lab.training.ensemble.pointwise import BENDS
from orthosparse.lab.training.ensemble.stages import Grid

_aten = torch.ops.aten


class After(NamedTuple):
    """What the gradient of samples goes through next: the activation that gave `y`, and the normalisation of `z`."""

    y: Tensor
    z: Tensor
    activation: str


class Maps:
    """The operations of a residual network.

    Args:
        dtype: in which products are computed.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self._weights: dict[Normed, Tensor] = {}

    def refresh(self, slab: Normed) -> None:
        """Take the weights of a slab as they are now: convolutions are by them until the next call."""
        self._weights[slab] = slab.weight.value.to(self.dtype)

    def prepared(self, x: Tensor, slab: Normed) -> Tensor:
        """Return the samples that a network gets as its first convolution wants them."""
        del slab  # as they are
        return x

    def convolve(self, x: Tensor, slab: Normed, layer: int, *, counted: bool) -> tuple[Tensor, Tensor | None]:
        """Return the convolution of the samples, and if `counted` the sums of it and of its squares."""
        members = zip(x, self._weights[slab][layer], strict=True)
        found = torch.stack([_convolved(one, kernel, grid_of(slab)) for one, kernel in members])
        return found, self.sums(found, found) if counted else None

    def convolve_back(
        self, grad: Tensor, slab: Normed, layer: int, *, add: Tensor | None = None, after: After | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Return the gradient of what a convolution saw, with `add`, and back through what comes before that.

        With `after` it is the gradient before the activation, and comes with its sums; see `unbend`.
        """
        members = zip(grad, self._weights[slab][layer], strict=True)
        found = torch.stack([_returned(one, kernel, grid_of(slab)) for one, kernel in members])
        if add is not None:
            found += add
        return (found, None) if after is None else self.unbend(found, after)

    def weigh(self, slab: Normed, layer: int, grad: Tensor, x: Tensor) -> None:
        """Take note of the gradient of a layer's weights; `collect` finishes it."""
        for member, (one, seen) in enumerate(zip(grad, x, strict=True)):
            found = _weighed(one, seen, self._weights[slab][layer, member], grid_of(slab))
            slab.weight.gradient[layer, member].copy_(found)

    def collect(self, slab: Normed) -> None:
        """Finish the gradients of a slab, and take their norms."""
        slab.measure()

    def sums(self, v: Tensor, z: Tensor) -> Tensor:
        """Return the sums of `v` and of its product with `z`, over the rows."""
        v, z = v.to(_exact(v)), z.to(_exact(z))
        return torch.stack([v.sum(1), (v * z).sum(1)], dim=1)

    def line(self, slab: Normed, layer: int, sums: Tensor, rows: int) -> Tensor:
        """Return what a normalisation does to a batch of these sums; the slab keeps the statistics."""
        slab.samples = rows
        mean, square = sums[:, 0] / rows, sums[:, 1] / rows
        # What is infinite stays so, as torch has it: less a mean that is as large it would not be a number.
        var = torch.where(square.isinf(), square, square - mean * mean)
        slab.batch_mean[layer], slab.batch_var[layer] = mean, var.clamp_(min=0)
        return line_by(slab, layer, slab.batch_mean, slab.batch_var)

    def plane(self, slab: Normed, layer: int, sums: Tensor, rows: int) -> Tensor:
        """Return what a normalisation does to gradients of these sums; fill those of its scale and shift."""
        mean, near = slab.batch_mean[layer], torch.rsqrt(slab.batch_var[layer] + slab.norms.eps)
        turned = (sums[:, 1] - mean * sums[:, 0]) * near
        slab.scale.gradient[layer], slab.shift.gradient[layer] = turned, sums[:, 0]
        slope = slab.scale.value[layer] * near
        lean = -slope * near * turned / rows
        return torch.stack([slope, lean, -lean * mean - slope * sums[:, 0] / rows])

    def bend(
        self, z: Tensor, line: Tensor, activation: str, other: Tensor | None = None, by: Tensor | None = None
    ) -> Tensor:
        """Return the activation of the normalised `z`, plus `other`, which may want to be normalised too."""
        found = _on(line, z)
        if other is not None:
            found += other if by is None else _on(by, other)
        BENDS[activation][0](found)
        return found.to(z.dtype)

    def unbend(self, grad: Tensor, after: After) -> tuple[Tensor, Tensor]:
        """Return the gradient before an activation, and the sums of it for the normalisation before that."""
        v = torch.empty_like(grad)
        BENDS[after.activation][1](grad, after.y, v)
        return v, self.sums(v, after.z)

    def mix(self, v: Tensor, z: Tensor, plane: Tensor) -> Tensor:
        """Return the gradient before a normalisation, of that after it."""
        slope, lean, offset = plane.unsqueeze(2)
        mixed: Tensor = slope * v + lean * z + offset
        return mixed.to(v.dtype)


def grid_of(slab: Normed) -> Grid:
    """Return where the convolutions of a slab look."""
    assert slab.stage.grid is not None, "a convolution"
    return slab.stage.grid


def line_by(slab: Normed, layer: int, mean: Tensor, var: Tensor) -> Tensor:
    """Return what a normalisation by these statistics does."""
    slope = slab.scale.value[layer] * torch.rsqrt(var[layer] + slab.norms.eps)
    return torch.stack([slope, slab.shift.value[layer] - mean[layer] * slope])


def _on(line: Tensor, z: Tensor) -> Tensor:
    slope, offset = line.unsqueeze(2)
    return torch.addcmul(offset, z, slope)


def _exact(tensor: Tensor) -> torch.dtype:
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32


def _convolved(x: Tensor, weight: Tensor, grid: Grid) -> Tensor:
    seen, kernel = _map(x, grid.height, grid.width), _kernel(weight, grid, x.shape[1])
    found = functional.conv2d(seen, kernel, stride=grid.stride, padding=grid.kernel // 2)
    return found.permute(0, 2, 3, 1).reshape(-1, len(weight))


def _returned(grad: Tensor, weight: Tensor, grid: Grid) -> Tensor:
    """Return the gradient of the samples."""
    channels = weight.shape[1] // grid.kernel**2
    pictures = len(grad) // (grid.out_height * grid.out_width)
    shape = grad.new_empty(1).expand(pictures, channels, grid.height, grid.width)
    (found, _, _) = _turned_back(grad, shape, _kernel(weight, grid, channels), grid, [True, False, False])
    return found.permute(0, 2, 3, 1).reshape(-1, channels)


def _weighed(grad: Tensor, x: Tensor, weight: Tensor, grid: Grid) -> Tensor:
    """Return the gradient of the weights."""
    seen, kernel = _map(x, grid.height, grid.width), _kernel(weight, grid, x.shape[1])
    (_, found, _) = _turned_back(grad, seen, kernel, grid, [False, True, False])
    return found.permute(0, 2, 3, 1).reshape(weight.shape)


def _turned_back(grad: Tensor, seen: Tensor, kernel: Tensor, grid: Grid, wanted: list[bool]) -> tuple[Tensor, ...]:
    given, pad = _map(grad, grid.out_height, grid.out_width), [grid.kernel // 2] * 2
    found: tuple[Tensor, ...] = _aten.convolution_backward(
        given, seen, kernel, None, [grid.stride] * 2, pad, [1, 1], False, [0, 0], 1, wanted
    )
    return found


def _map(rows: Tensor, height: int, width: int) -> Tensor:
    """Return rows as maps in torch's shape, channels innermost in memory."""
    return rows.view(-1, height, width, rows.shape[1]).permute(0, 3, 1, 2)


def _kernel(weight: Tensor, grid: Grid, channels: int) -> Tensor:
    return weight.view(-1, grid.kernel, grid.kernel, channels).permute(0, 3, 1, 2)
