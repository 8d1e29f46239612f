"""Stacked networks for the training loop: one step trains all of them, each as it would train by itself."""

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
    """Stacked networks of one shape, with explicit forward and backward passes."""

    def infer(self, x: Tensor) -> Tensor:
        """Return the logits for samples ``[networks, batch, features]`` in evaluation mode, and save nothing."""

    def forward(self, x: Tensor) -> tuple[Tensor, list[Any]]:
        """Return the logits in training mode, and what `backward` needs."""

    def backward(self, grad: Tensor, saved: list[Any]) -> None:
        """Fill the gradients of all slabs and their norms; `saved` is emptied on the way."""


class _Passes(torch.autograd.Function):
    """Stacked networks as one autograd function; the gradients of the weights are written to the slabs."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, anchor: Tensor, network: Network) -> Tensor:
        del anchor  # requires a gradient, so that autograd calls `backward`
        logits, ctx.saved = network.forward(x)
        ctx.network = network
        return logits

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, None, None]:
        ctx.network.backward(grads[0], ctx.saved)
        return None, None, None


class _Update(NamedTuple):
    """How a leaf is updated.

    Attributes:
        fused: whether our kernel takes the step.
        active: the groups of entries that our kernel updates, see `launches.active_groups`.
    """

    slab: Slab
    leaf: Leaf
    weight_decay: float
    fused: bool
    active: Tensor | None


class _Moving(NamedTuple):
    """The networks whose masks move at a step, as they were before it: state dicts and momenta."""

    steps_done: int
    before: dict[int, tuple[dict[str, Tensor], dict[str, Tensor]]]


class Stack:
    """Networks of one shape with SGD; see `Networks`.

    A step at which the masks of a network move is repeated by a single run of that network, which does nothing at all
    other steps. That costs a step of a single run every few hundred steps.

    Args:
        pairs: descriptions and seeds of the runs.
        compute: the dtype of products; slabs have a dtype of their own.
        starts: without their weights, which are in the slabs.
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
        self._updates = list(self._new_updates(fused))
        self._singles: dict[int, Stepper] = {}  # of networks whose masks move, by index
        self._data: Any = None

    def __call__(self, images: Tensor) -> Tensor:
        """Return the logits, ``[networks, batch, classes]``; in evaluation mode, all networks get the same images."""
        x = self._in_rows(images).to(self._compute)
        if self._training:
            logits: Tensor = _Passes.apply(x, self._anchor, self.network)  # type: ignore[no-untyped-call]
            return logits
        return self.network.infer(x.expand(self.count, -1, -1).contiguous())

    def train(self, mode: bool = True) -> None:
        """Set training or evaluation mode."""
        self._training = mode

    def passes(self) -> AbstractContextManager[Any]:
        """Return an empty context: `backward` masks the gradients."""
        return nullcontext()

    def accumulating(self, more: bool) -> AbstractContextManager[Any]:
        """Return an empty context: batches are not split."""
        assert not more, "batches of a stack are not split"
        return nullcontext()

    def zero_grad(self) -> None:
        """Do nothing: each step overwrites the gradients."""

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
        stopped, rates = ~alive, self.rate * alive
        for slab, leaf, weight_decay, fused, active in self._updates:
            value, gradient, momentum = (each.flatten(2) for each in (leaf.value, leaf.gradient, leaf.momentum))
            rule = weight_decay, self.recipe.momentum, self.recipe.nesterov
            broadcast = stopped.view(1, -1, 1), rates.view(1, -1, 1), rule
            if fused:
                # A run that needs the copy has created it in its first forward pass.
                copy = slab.rounded if leaf is slab.weight else None
                launches.sgd_step(value, gradient, momentum, *broadcast, active=active, copy=copy)
            else:
                sgd_step(value, gradient, momentum, *broadcast)
        for slab in self.slabs:
            slab.update_statistics(alive)

    def set_rate(self, rate: float) -> None:
        """Set the learning rate, in index: a captured graph reads it."""
        self.rate.fill_(rate)

    def move_masks_with(self, fabric: Any, data: Any) -> None:
        """Create the single runs that take the steps at which masks move."""
        self._data = data
        for index, (run, _) in enumerate(self.pairs):
            if run.dynamic is not None and self.starts[index].problem is None:
                self._singles[index] = Stepper(self._run_of(fabric, index), graph=False)

    def before_step(self, steps_done: int, *, whole: bool) -> _Moving | None:
        """Return the networks whose masks move at the next step, as they are now; None if there are none."""
        del whole  # makes no difference
        before = {}
        for index, stepper in self._singles.items():
            rewirer = stepper.state.networks.rewirer  # type: ignore[attr-defined]  # of a single network
            rewirer.taken = steps_done
            if rewirer.due:
                momenta = {name: tensor for slab in self.slabs for name, tensor in slab.momenta_of(index)}
                before[index] = self.state_of(index), momenta
        return _Moving(steps_done, before) if before else None

    def after_step(self, moving: _Moving | None, images: Tensor, labels: Tensor, alive: Tensor) -> None:
        """Repeat the step by single runs, which move the masks; not for networks that stopped at it."""
        if moving is None:
            return
        is_alive = alive.tolist()
        # Layers may draw from torch's global generators, which a single run seeds at every step.
        with fenced(0, [self.device] if self.device.type == "cuda" else []):
            for index, before in moving.before.items():
                if is_alive[index]:
                    self._step_single(index, moving.steps_done, *before, images[index], labels[index])
        self._refresh_updates()

    def densities(self) -> list[float]:
        """Return the density of each network over the layers that have masks; 1 without masks."""
        return [start.density for start in self.starts]

    def state_of(self, index: int) -> dict[str, Tensor]:
        """Return the state dict of a network, as in a single run."""
        return {name: tensor for slab in self.slabs for name, tensor in slab.state_of(index)}

    def as_single(self, state: State, index: int) -> State:
        """Return a single run of a network with its current weights."""
        return self._run_of(state.fabric, index)

    def state_dict(self) -> dict[str, Any]:
        """Return the active weights and momenta, and the masks that move; other masks are in the starts."""
        moving = []
        for index, stepper in self._singles.items():
            masks = {name: tensor.cpu() for name, tensor in self.state_of(index).items() if name.endswith("_mask")}
            rewirer = stepper.state.networks.rewirer.state_dict()  # type: ignore[attr-defined]
            moving.append({"place": index, "masks": masks, "rewirer": rewirer})
        return {"slabs": [_packed_slab(slab) for slab in self.slabs], "moving": moving}

    def load_state_dict(self, tree: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned; the masks of the starts are set already."""
        for moving in tree["moving"]:
            for slab in self.slabs:
                slab.fill_masks(moving["place"], moving["masks"])
            single = self._singles[moving["place"]].state.networks
            single.rewirer.load_state_dict(moving["rewirer"])  # type: ignore[attr-defined]
        for slab, saved in zip(self.slabs, tree["slabs"], strict=True):
            for name, leaf in slab.named.items():
                _unpack(leaf.value, leaf, saved[name])
                _unpack(leaf.momentum, leaf, saved[f"{name}_momentum"])
            for name, tensor in slab.buffers.items():
                tensor.copy_(saved[name])
        self._refresh_updates()

    def _refresh_updates(self) -> None:
        """Recompute what updates derive from masks and weights; in index, as a captured graph reads it."""
        for slab, leaf, _, _, active in self._updates:
            if active is not None and (groups := launches.active_groups(leaf)) is not None:
                active.copy_(groups)
            if leaf is slab.weight and slab.rounded is not None:
                slab.rounded.copy_(launches.rounded(leaf.value))

    def _new_updates(self, fused: bool | None) -> Iterator[_Update]:
        fused = chosen(fused, self.device) and self.dtype == torch.float32
        for slab in self.slabs:
            for leaf in slab.leaves:
                decays = leaf is slab.weight or self.recipe.decay_vectors
                active = launches.active_groups(leaf) if fused else None
                yield _Update(slab, leaf, self.recipe.weight_decay if decays else 0.0, fused, active)

    def _run_of(self, fabric: Any, index: int) -> State:
        run, seed = self.pairs[index]
        return assemble(run, seed, fabric, data=self._data, saved=self.state_of(index))

    def _step_single(
        self,
        index: int,
        steps_done: int,
        model: dict[str, Tensor],
        momenta: dict[str, Tensor],
        images: Tensor,
        labels: Tensor,
    ) -> None:
        stepper = self._singles[index]
        state, single = stepper.state, stepper.state.networks
        assert isinstance(single, Single), "a single network"
        assert single.rewirer is not None, "its masks move"
        single.network.load_state_dict(model)
        for name, parameter in _parameters(single.network):
            single.optimizer.state[parameter]["momentum_buffer"] = momenta[name]
        state.epoch, state.step = divmod(steps_done, len(state.loader))
        state.set_rate()
        single.rewirer.load_state_dict({**single.rewirer.state_dict(), "taken": steps_done})
        stepper(images, labels)
        momenta = {name: single.optimizer.state[each]["momentum_buffer"] for name, each in _parameters(single.network)}
        for slab in self.slabs:
            slab.fill(index, single.network.state_dict())
            slab.fill_momenta(index, momenta)


def _parameters(network: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Yield the parameters of a network and the names that they have without masks."""
    for name, parameter in network.named_parameters():
        yield plain_name(name), parameter


def _packed_slab(slab: Slab) -> dict[str, Tensor]:
    packed = {name: tensor.to("cpu", copy=True) for name, tensor in slab.buffers.items()}
    for name, leaf in slab.named.items():
        packed |= {name: _packed(leaf.value, leaf), f"{name}_momentum": _packed(leaf.momentum, leaf)}
    return packed


def _packed(tensor: Tensor, leaf: Leaf) -> Tensor:
    """Return the active entries; the others are zero. Layer by layer, as CUDA indexes fewer than 2^31 entries."""
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
