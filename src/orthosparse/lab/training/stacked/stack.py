"""Stacked networks as the loop trains them: one step for all of them, each as it would train alone."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from orthosparse.lab.seeds import fenced
from orthosparse.lab.training.assembly import assemble
from orthosparse.lab.training.recipe import Recipe
from orthosparse.lab.training.run import Run
from orthosparse.lab.training.single import Single
from orthosparse.lab.training.stacked import launches
from orthosparse.lab.training.stacked.fused import chosen
from orthosparse.lab.training.stacked.operations import sgd_step
from orthosparse.lab.training.stacked.slab import Leaf, Slab
from orthosparse.lab.training.starts import Start
from orthosparse.lab.training.state import State
from orthosparse.lab.training.step import Stepper
from orthosparse.layers import plain_name


class Network(Protocol):
    """Networks of one shape, computed together: forward and backward passes written out."""

    def infer(self, x: Tensor) -> Tensor:
        """Return the logits for samples ``[networks, batch, features]`` as they are tested, and keep nothing."""

    def forward(self, x: Tensor) -> tuple[Tensor, list[Any]]:
        """Return the logits as they are trained, and what `backward` needs."""

    def backward(self, grad: Tensor, kept: list[Any]) -> None:
        """Fill the gradients of all slabs and their norms; `kept` is emptied on the way."""


class _Passes(torch.autograd.Function):
    """The passes of stacked networks as one node of autograd's graph: gradients of weights go to the slabs."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, anchor: Tensor, network: Network) -> Tensor:
        del anchor  # it requires a gradient, so that there is a backward pass
        logits, ctx.kept = network.forward(x)
        ctx.network = network
        return logits

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, None, None]:
        ctx.network.backward(grads[0], ctx.kept)
        return None, None, None


class _Update(NamedTuple):
    """What is trained, its weight decay, whether our kernel takes the step, and which groups of entries that reads."""

    slab: Slab
    leaf: Leaf
    decay: float
    ours: bool
    active: Tensor | None


class _Moving(NamedTuple):
    """The networks whose masks move at a step, as they were before it: state dicts and momenta."""

    steps_done: int
    before: dict[int, tuple[dict[str, Tensor], dict[str, Tensor]]]


class Stack:
    """Networks of one shape with SGD; see `Networks`.

    A step at which masks move each network takes as it would alone, by a run of its own that stands still at all
    others: every few hundred steps that costs a step of a single run each.

    Args:
        pairs: descriptions and seeds of the runs.
        compute: the type in which products are computed; the slabs keep their own.
        starts: without their weights, which the slabs have.
        in_rows: returns images ``[..., C, H, W]`` as rows of numbers, in the order in which the network reads them.
        fused: see `fused.chosen`.
    """

    moves_eagerly = False
    parts: Mapping[str, type | tuple[type, ...]] = {"slabs": list, "moving": list}

    def __init__(
        self,
        pairs: Sequence[tuple[Run, int]],
        network: Network,
        slabs: Sequence[Slab],
        starts: Sequence[Start],
        in_rows: Any,
        *,
        compute: torch.dtype,
        fused: bool | None,
    ) -> None:
        self.pairs, self.network, self.slabs, self.starts = pairs, network, slabs, starts
        self.count, self.parameters = len(pairs), max(start.parameters for start in starts)
        self.recipe: Recipe = pairs[0][0].recipe
        value = slabs[0].weight.value
        self.dtype, self.device, self.capturable = value.dtype, value.device, value.is_cuda
        self.rate = torch.zeros((), device=self.device)  # float32, as the optimizers of single runs have it
        self._in_rows, self._compute, self._training = in_rows, compute, True
        self._anchor = torch.empty(0, dtype=compute, device=self.device, requires_grad=True)
        self._updates = list(self._made_updates(fused))
        self._alone: dict[int, Stepper] = {}
        self._data: Any = None

    def __call__(self, images: Tensor) -> Tensor:
        """Return the logits, ``[networks, batch, classes]``; while testing, all networks see the same images."""
        x = self._in_rows(images).to(self._compute)
        if self._training:
            logits: Tensor = _Passes.apply(x, self._anchor, self.network)  # type: ignore[no-untyped-call]
            return logits
        return self.network.infer(x.expand(self.count, -1, -1).contiguous())

    def train(self, mode: bool = True) -> None:
        """Compute as in training, or as in tests."""
        self._training = mode

    def passes(self) -> AbstractContextManager[Any]:
        """Return nothing: masks act on the gradients anyway."""
        return nullcontext()

    def accumulating(self, more: bool) -> AbstractContextManager[Any]:
        """Return nothing: a batch is one part."""
        assert not more, "a stack takes whole batches"
        return nullcontext()

    def zero_grad(self) -> None:
        """Do nothing: gradients are written anew at every step."""

    def backward(self, loss: Tensor) -> None:
        """Fill the gradients."""
        loss.backward()

    def gradient_norms(self) -> Tensor:
        """Return the norm of each network's gradient."""
        norms = [leaf.norms for slab in self.slabs for leaf in slab.leaves]
        total: Tensor = torch.linalg.vector_norm(torch.cat(norms), dim=0)
        return total

    @torch.no_grad()
    def update(self, alive: Tensor) -> None:
        """Take a step of SGD with the networks that are alive."""
        dead, rates = ~alive, self.rate * alive
        for slab, leaf, decay, ours, active in self._updates:
            value, gradient, momentum = (each.flatten(2) for each in (leaf.value, leaf.gradient, leaf.momentum))
            rule = decay, self.recipe.momentum, self.recipe.nesterov
            broadcast = dead.view(1, -1, 1), rates.view(1, -1, 1), rule
            if ours:
                # A run has this copy from its first step on.
                copy = slab.rounded if leaf is slab.weight else None
                launches.sgd_step(value, gradient, momentum, *broadcast, active=active, copy=copy)
            else:
                sgd_step(value, gradient, momentum, *broadcast)
        for slab in self.slabs:
            slab.update_statistics(alive)

    def set_rate(self, rate: float) -> None:
        """Set the learning rate, in place: a captured graph reads it."""
        self.rate.fill_(rate)

    def move_masks_with(self, fabric: Any, data: Any) -> None:
        """Make the runs that take the steps at which masks move."""
        self._data = data
        for place, (run, _) in enumerate(self.pairs):
            if run.dynamic is not None and self.starts[place].problem is None:
                self._alone[place] = Stepper(self._run_of(fabric, place), graph=False)

    def before_step(self, steps_done: int, *, whole: bool) -> _Moving | None:
        """Return the networks whose masks move at the next step, as they are now; None where there are none."""
        del whole  # it makes no difference
        before = {}
        for place, stepper in self._alone.items():
            rewirer = stepper.state.networks.rewirer  # type: ignore[attr-defined]  # of a single network
            rewirer.taken = steps_done
            if rewirer.due:
                momenta = {name: tensor for slab in self.slabs for name, tensor in slab.momenta_of(place)}
                before[place] = self.state_of(place), momenta
        return _Moving(steps_done, before) if before else None

    def after_step(self, moving: _Moving | None, images: Tensor, labels: Tensor, alive: Tensor) -> None:
        """Let networks take the step again, alone, and move their masks; not those that stopped at it."""
        if moving is None:
            return
        lives = alive.tolist()
        # Layers may draw from torch's global generators, which a single run seeds at every step.
        with fenced(0, [self.device] if self.device.type == "cuda" else []):
            for place, before in moving.before.items():
                if lives[place]:
                    self._step_alone(place, moving.steps_done, *before, images[place], labels[place])
        self._refresh_updates()

    def densities(self) -> list[float]:
        """Return the share of weights that are active, of the layers that have masks; 1 without any."""
        return [start.density for start in self.starts]

    def state_of(self, place: int) -> dict[str, Tensor]:
        """Return the state dict that a network would have alone."""
        return {name: tensor for slab in self.slabs for name, tensor in slab.state_of(place)}

    def alone(self, state: State, place: int) -> State:
        """Return a run of one of the networks alone, with the weights that it has now."""
        return self._run_of(state.fabric, place)

    def state_dict(self) -> dict[str, Any]:
        """Return what the masks let through, and the masks that move; the others are in the starts."""
        moving = []
        for place, stepper in self._alone.items():
            masks = {name: tensor.cpu() for name, tensor in self.state_of(place).items() if name.endswith("_mask")}
            rewirer = stepper.state.networks.rewirer.state_dict()  # type: ignore[attr-defined]
            moving.append({"place": place, "masks": masks, "rewirer": rewirer})
        return {"slabs": [_packed_slab(slab) for slab in self.slabs], "moving": moving}

    def load_state_dict(self, tree: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` returned; the masks of the starts are there already."""
        for each in tree["moving"]:
            for slab in self.slabs:
                slab.fill_masks(each["place"], each["masks"])
            own = self._alone[each["place"]].state.networks
            own.rewirer.load_state_dict(each["rewirer"])  # type: ignore[attr-defined]
        for slab, saved in zip(self.slabs, tree["slabs"], strict=True):
            for name, leaf in slab.named.items():
                _unpack(leaf.value, leaf, saved[name])
                _unpack(leaf.momentum, leaf, saved[f"{name}_momentum"])
            for name, tensor in slab.buffers.items():
                tensor.copy_(saved[name])
        self._refresh_updates()

    def _refresh_updates(self) -> None:
        """Compute again what the updates know of masks and weights; in place, as a captured graph reads it."""
        for slab, leaf, _, _, active in self._updates:
            if active is not None and (found := launches.active_groups(leaf)) is not None:
                active.copy_(found)
            if leaf is slab.weight and slab.rounded is not None:
                slab.rounded.copy_(launches.rounded(leaf.value))

    def _made_updates(self, fused: bool | None) -> Iterator[_Update]:
        ours = chosen(fused, self.device) and self.dtype == torch.float32
        for slab in self.slabs:
            for leaf in slab.leaves:
                decays = leaf is slab.weight or self.recipe.decay_vectors
                active = launches.active_groups(leaf) if ours else None
                yield _Update(slab, leaf, self.recipe.weight_decay if decays else 0.0, ours, active)

    def _run_of(self, fabric: Any, place: int) -> State:
        run, seed = self.pairs[place]
        return assemble(run, seed, fabric, data=self._data, saved=self.state_of(place))

    def _step_alone(
        self,
        place: int,
        steps_done: int,
        model: dict[str, Tensor],
        momenta: dict[str, Tensor],
        images: Tensor,
        labels: Tensor,
    ) -> None:
        stepper = self._alone[place]
        state, single = stepper.state, stepper.state.networks
        assert isinstance(single, Single), "a run of one network"
        assert single.rewirer is not None, "with masks that move"
        single.network.load_state_dict(model)
        for name, parameter in _parameters(single.network):
            single.optimizer.state[parameter]["momentum_buffer"] = momenta[name]
        state.epoch, state.step = divmod(steps_done, len(state.loader))
        state.set_rate()
        single.rewirer.load_state_dict({**single.rewirer.state_dict(), "taken": steps_done})  # it listens now
        stepper(images, labels)
        found = {name: single.optimizer.state[each]["momentum_buffer"] for name, each in _parameters(single.network)}
        for slab in self.slabs:
            slab.fill(place, single.network.state_dict())
            slab.fill_momenta(place, found)


def _parameters(network: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Yield the parameters of a network by the names that they have without masks."""
    for name, parameter in network.named_parameters():
        yield plain_name(name), parameter


def _packed_slab(slab: Slab) -> dict[str, Tensor]:
    packed = {name: tensor.to("cpu", copy=True) for name, tensor in slab.buffers.items()}
    for name, leaf in slab.named.items():
        packed |= {name: _packed(leaf.value, leaf), f"{name}_momentum": _packed(leaf.momentum, leaf)}
    return packed


def _packed(tensor: Tensor, leaf: Leaf) -> Tensor:
    """Return the entries under the masks: off them there are zeros. Layer by layer, as CUDA counts to 2^31 only."""
    if leaf.off is None:
        return tensor.to("cpu", copy=True)
    return torch.cat([layer[~off].cpu() for layer, off in zip(tensor, leaf.off, strict=True)])


def _unpack(tensor: Tensor, leaf: Leaf, entries: Tensor) -> None:
    if leaf.off is None:
        tensor.copy_(entries)
        return
    tensor.zero_()
    begin = 0
    for layer, off in zip(tensor, leaf.off, strict=True):
        count = off.numel() - int(off.sum())
        layer.masked_scatter_(~off, entries[begin : begin + count].to(layer.device))
        begin += count
