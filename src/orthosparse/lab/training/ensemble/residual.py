"""Stacked residual networks from samples to logits and back, the backward pass written out."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from orthosparse.lab.training.ensemble.layout import Joint, Layout, Spot
from orthosparse.lab.training.ensemble.maps import After, Maps, line_by
from orthosparse.lab.training.ensemble.normed import Normed
from orthosparse.lab.training.ensemble.own_maps import maps_of
from orthosparse.lab.training.ensemble.plain import Run
from orthosparse.lab.training.ensemble.slab import Slab
from orthosparse.lab.training.ensemble.ways import Ways


class _Seen(NamedTuple):
    """What the way back through a block needs: its input, its convolutions, what lies between them, and its output."""

    x: Tensor
    first: Tensor
    between: Tensor
    second: Tensor
    beside: Tensor | None
    y: Tensor


class Residual:
    """Networks of one layout, one convolution of all members after the other.

    Every convolution is kept, and what its activation gave. A gradient goes through an activation where it is made, and
    the sums that the normalisation before that needs are taken there too.

    Args:
        slabs: of the stages of the layout, and of its head.
        dtype: in which products are computed; the slabs keep their own.

    Raises:
        ValueError: ways that a residual network does not have.
    """

    def __init__(self, layout: Layout, slabs: list[Normed], head: Slab, dtype: torch.dtype, ways: Ways) -> None:
        if ways.recompute:
            raise ValueError("recompute: expected False for residual networks, which keep every layer; got True")
        self.layout, self.slabs, self.dtype = layout, slabs, dtype
        self.maps: Maps = maps_of(layout, slabs, dtype, ways)
        self.head = Run(head, dtype, ways)

    def rows(self, images: Tensor) -> Tensor:
        """Return pictures ``[..., C, H, W]`` as rows of numbers, channels innermost."""
        return torch.movedim(images, -3, -1).flatten(-3)

    def logits(self, x: Tensor) -> Tensor:
        """Return the outputs for samples ``[members, batch, features]`` by the running statistics, and keep nothing."""
        passing = _Pass(self, tested=True)
        *_, y = passing.stem(x)
        for joint in self.layout.joints:
            y = passing.block(joint, y).y
        return self.head.through(self._pooled(y, x.shape[1]))

    def ahead(self, x: Tensor) -> tuple[Tensor, list[Any]]:
        """Return the outputs by the statistics of the batch, and what the way back needs."""
        passing = _Pass(self, tested=False)
        seen, z, y = passing.stem(x)
        kept: list[Any] = [(passing, seen, z)]
        for joint in self.layout.joints:
            kept.append(passing.block(joint, y))
            y = kept[-1].y
        logits, own = self.head.ahead(self._pooled(y, x.shape[1]))
        return logits, [*kept, own]

    def back(self, grad: Tensor, kept: list[Any]) -> None:
        """Fill the gradients of all slabs and their norms; `kept` is emptied on the way."""
        grad_pooled = self.head.back(grad, kept.pop(), first=False)
        assert grad_pooled is not None, "the head is not first"
        passing, x, z = kept[0]
        last = kept[-1]
        spread = (grad_pooled / self.layout.positions).unsqueeze(2).expand(-1, -1, self.layout.positions, -1)
        after = After(last.y, last.second, self.layout.activation)
        v, sums = self.maps.unbend(spread.reshape(last.y.shape), after)
        for joint in reversed(self.layout.joints):
            seen = kept.pop()
            before = kept[-1].second if len(kept) > 1 else z
            v, sums = passing.block_back(joint, seen, before, v, sums)
        passing.stem_back(x, z, v, sums)
        kept.clear()
        for slab in self.slabs:
            self.maps.collect(slab)

    def _pooled(self, y: Tensor, batch: int) -> Tensor:
        return y.view(len(y), batch, self.layout.positions, -1).mean(2)


class _Pass:
    """A way through the network by one state of its weights."""

    def __init__(self, network: Residual, *, tested: bool) -> None:
        self.layout, self.maps, self.slabs, self.tested = network.layout, network.maps, network.slabs, tested
        for slab in self.slabs:
            self.maps.refresh(slab)

    def stem(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        slab = self.slabs[self.layout.stem.stage]
        x = self.maps.prepared(x.reshape(len(x), -1, slab.stage.inputs), slab)
        z, line = self._normed(x, self.layout.stem)
        return x, z, self.maps.bend(z, line, self.layout.activation)

    def block(self, joint: Joint, x: Tensor) -> _Seen:
        first, line = self._normed(x, joint.first)
        between = self.maps.bend(first, line, self.layout.activation)
        second, line = self._normed(between, joint.second)
        if joint.shortcut is None:
            return _Seen(x, first, between, second, None, self.maps.bend(second, line, self.layout.activation, x))
        beside, by = self._normed(x, joint.shortcut)
        y = self.maps.bend(second, line, self.layout.activation, beside, by)
        return _Seen(x, first, between, second, beside, y)

    def block_back(self, joint: Joint, seen: _Seen, before: Tensor, v: Tensor, sums: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradient before the activation that gave the input of a block, and its sums with `before`."""
        maps, activation = self.maps, self.layout.activation
        inner = self._unnormed(joint.second, v, seen.second, sums)
        self._weigh(joint.second, inner, seen.between)
        found, own = self._back(joint.second, inner, after=After(seen.between, seen.first, activation))
        inner = self._unnormed(joint.first, found, seen.first, own)
        self._weigh(joint.first, inner, seen.x)
        add = v
        if joint.shortcut is not None and seen.beside is not None:
            beside = self._unnormed(joint.shortcut, v, seen.beside, maps.sums(v, seen.beside))
            self._weigh(joint.shortcut, beside, seen.x)
            add, _ = self._back(joint.shortcut, beside)
        return self._back(joint.first, inner, add=add, after=After(seen.x, before, activation))

    def stem_back(self, x: Tensor, z: Tensor, v: Tensor, sums: Tensor) -> None:
        self._weigh(self.layout.stem, self._unnormed(self.layout.stem, v, z, sums), x)

    def _normed(self, x: Tensor, spot: Spot) -> tuple[Tensor, Tensor]:
        slab = self.slabs[spot.stage]
        z, sums = self.maps.convolve(x, slab, spot.layer, counted=not self.tested)
        if sums is None:
            return z, line_by(slab, spot.layer, slab.mean, slab.var)
        if z.shape[1] < 2:  # as torch
            raise ValueError("batch: expected more than one value a channel to train on; got a single one")
        return z, self.maps.line(slab, spot.layer, sums, z.shape[1])

    def _unnormed(self, spot: Spot, v: Tensor, z: Tensor, sums: Tensor) -> Tensor:
        return self.maps.mix(v, z, self.maps.plane(self.slabs[spot.stage], spot.layer, sums, v.shape[1]))

    def _weigh(self, spot: Spot, grad: Tensor, x: Tensor) -> None:
        self.maps.weigh(self.slabs[spot.stage], spot.layer, grad, x)

    def _back(self, spot: Spot, grad: Tensor, **what: Any) -> tuple[Tensor, Any]:
        return self.maps.convolve_back(grad, self.slabs[spot.stage], spot.layer, **what)
