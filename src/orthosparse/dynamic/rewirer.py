"""The Rewirer: SET and RigL on any sparsified model, stepped like a learning-rate scheduler."""

import gc
import logging
from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary, ref

import torch
from torch import nn

from orthosparse import masking
from orthosparse.aliases import Counts, GrowthName, Scores
from orthosparse.checks import check_at_least, check_density, check_optimizer
from orthosparse.distributed import Group, broadcast_seed, check_group, full_tensor, mean_over_ranks, reshard
from orthosparse.dynamic._criteria import cosine, direction_of, drop_smallest, grow_largest, sizes_of
from orthosparse.dynamic._gradients import DenseGradients
from orthosparse.dynamic._state import read_state
from orthosparse.dynamic._units import units_of
from orthosparse.hardware import precise
from orthosparse.layers import unwrapped
from orthosparse.masks import resize
from orthosparse.randomness import derive, draw_seed
from orthosparse.registry import lookup
from orthosparse.structures import TWO_OF_FOUR, grid_of, structure_of, tiled

_log = logging.getLogger(__name__)

GROWTH = {
    "gradient": "the largest |dense gradient| of the step (RigL, Evci et al. 2020)",
    "random": "uniformly at random (SET, Mocanu et al. 2018)",
    "momentum": "the largest |running mean of the dense gradients seen at updates, each divided by its norm|",
}
_MOMENTUM = 0.9  # of that running mean
_movers: "WeakKeyDictionary[nn.Module, ref[Rewirer]]" = WeakKeyDictionary()  # the last Rewirer built for each layer


class Rewirer:
    """Moves a fraction of the active weights every few steps; each layer keeps exactly its count.

    Call ``step()`` after every ``optimizer.step()``. An update drops the active weights with the smallest magnitudes
    and grows as many inactive ones. New weights start at zero, and the optimizer state of every weight that moved is
    reset to that of a new weight. Masks of whole blocks (``structure="block:64"`` in `sparsify`) move by blocks: those
    with the smallest norms are dropped, and those whose dense gradients have the largest norms are grown. Layers that
    hold only their active weights (`orthosparse.compact`) move in the same way.

    Dense gradients are computed on update steps only; a model under torch.compile gets a second graph for these. If
    they are not all finite (for example in a step that a GradScaler skips), nothing moves, and the update waits for the
    next step. All ranks of a distributed run make the same moves. Layers that are frozen, or not held by the optimizer,
    do not move; neither do, in one update, layers that the step did not use (such as the head of another task).

    Args:
        model: a sparsified model.
        optimizer: the optimizer that trains it; its state is reset where weights move, and it is not wrapped. LBFGS is
            not supported, because its history mixes the weights.
        grow: which inactive weights become active: ``gradient``, those with the largest dense gradients (RigL);
            ``random``, any (SET); ``momentum``, those with the largest running mean of the dense gradients. Each update
            adds its gradient, divided by its norm, to 0.9 times the previous value of this mean, which is less noisy
            than a single batch, does not depend on loss scales that change, and takes one dense tensor per layer.
        every: number of steps between updates. A warning is logged if there is no update before the masks stop moving.
        fraction: fraction of the active weights that an update moves. It falls along half a cosine: from the whole
            fraction at step 0, over half of it halfway, to 0 when the masks stop moving.
        steps: length of the training in steps.
        until: fraction of the training after which the masks stop moving (RigL: 0.75); there is no update on that step.
        generator: the seed of the random numbers (for ``random``) is drawn from it.
        seed: the seed itself, instead of `generator`.
        group: the process group that holds this model, as in `sparsify`.

    Attributes:
        taken: number of steps so far.
        updates: number of updates so far.
        moved: number of weights that moved at the last update, by layer.
        moved_in_all: number of weights that have moved so far, by layer.
        due: whether the next step is an update.

    Raises:
        TypeError: `optimizer` is not an optimizer, or `fraction` is not a number.
        ValueError: an argument is invalid, the model has no masks or has masks of the structure 2:4, or the optimizer
            holds none of its masked parameters.

    Example:
        >>> import orthosparse
        >>> model = nn.Sequential(nn.Linear(20, 40), nn.ReLU(), nn.Linear(40, 5))
        >>> _ = orthosparse.sparsify(model, 0.2, generator=torch.Generator().manual_seed(0))
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        >>> rewirer = Rewirer(model, optimizer, every=2, steps=10)
        >>> for _ in range(4):
        ...     model(torch.ones(3, 20)).square().sum().backward()
        ...     optimizer.step(); optimizer.zero_grad(); rewirer.step()
        >>> rewirer.updates, sum(int(mask.sum()) for mask in orthosparse.masks_of(model).values())
        (2, 200)
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        grow: GrowthName | str = "gradient",
        every: int = 800,
        fraction: float = 0.5,
        steps: int,
        until: float = 0.75,
        generator: torch.Generator | None = None,
        seed: int | None = None,
        group: Group = None,
    ) -> None:
        check_group(group)
        lookup(GROWTH, grow, "grow")
        _check(every=every, steps=steps, fraction=fraction, until=until)
        self.units = units_of(model)
        if not self.units:
            raise ValueError("model: expected a sparsified model; this one has no masks (call sparsify first)")
        reshard(unwrapped(model))
        held = _held_by(optimizer)
        self.units = {name: units for name, units in self.units.items() if id(units.parameter) in held}
        if not self.units:
            raise ValueError(
                "optimizer: expected the one that trains the model; it holds none of its masked parameters"
            )
        for name, mask in masking.masks_of(model).items():
            if name in self.units and structure_of(mask) == TWO_OF_FOUR:
                raise ValueError(f"model: expected masks that may move; {name!r} has two of any four (structure '2:4')")
        self.model, self.optimizer, self.grow = model, optimizer, grow
        self.every, self.fraction = every, fraction
        self.end = round(until * steps, 6)  # 0.55 * 100 is 55, not a little more
        self.group = group
        self.seed = broadcast_seed(draw_seed(generator, seed), group)
        self.taken, self.updates = 0, 0
        self.postponed = False  # an update waits for finite gradients
        self.moved: Counts = {}
        self.moved_in_all: Counts = dict.fromkeys(self.units, 0)
        self.momentum: Scores = {}
        self._gradients = DenseGradients(self.units)
        _movers.update({units.host: ref(self) for units in self.units.values()})
        self._listen_when_due()
        if every >= self.end:
            _log.warning(
                "orthosparse: this Rewirer will never move a weight: its first update would be step %d, but the "
                "masks stop moving at step %g (until=%g of steps=%d)",
                every,
                self.end,
                until,
                steps,
            )

    def __repr__(self) -> str:
        options = f"grow={self.grow!r}, every={self.every}, fraction={self.fraction:g}"
        moved = f"{sum(self.moved.values()):,} weights moved at the last, {sum(self.moved_in_all.values()):,} in all"
        end = f"masks stop moving at step {self.end:g}"
        return f"Rewirer({options}: step {self.taken:,}, {end}; {self.updates} updates, {moved})"

    @property
    def due(self) -> bool:
        """Whether the next ``step()`` is an update.

        A CUDA graph that was captured on another step does not compute the gradients for an update.
        """
        upcoming = self.taken + 1
        return (self.postponed or upcoming % self.every == 0) and upcoming < self.end

    def step(self) -> None:
        """Count one optimizer step, and move weights if an update is due.

        Raises:
            RuntimeError: an update is due, but no forward and backward pass went through any layer since the last step,
                or layers have been replaced (by `compact`, `expand` or `bake`) since this Rewirer was built; or another
                Rewirer has been built for one of its layers since.
        """
        self._check_alone()
        if self.due:
            self._check_layers()
        due, gathered = self.due, self._gradients.stop()
        self.taken += 1
        moved = due and self._rewire(gathered)
        self.updates += moved
        self.postponed = due and not moved
        self._listen_when_due()

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run needs, as plain values and tensors."""
        counts = {"taken": self.taken, "updates": self.updates, "postponed": self.postponed}
        moved = {"moved_in_all": dict(self.moved_in_all)}
        return {**counts, **moved, "seed": self.seed, "momentum": dict(self.momentum)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved state; the masks themselves are in the state dict of the model.

        Raises:
            TypeError, ValueError: `state` is not that of a Rewirer of such a model; nothing is changed.
        """
        saved = read_state(state, {name: units.shape for name, units in self.units.items()})
        self._gradients.stop()
        self.taken, self.updates, self.postponed, self.seed, self.momentum, moved = saved
        self.momentum = {name: score.to(self.units[name].like.device) for name, score in self.momentum.items()}
        self.moved, self.moved_in_all = {}, dict.fromkeys(self.units, 0) | moved
        self._listen_when_due()

    def _check_alone(self) -> None:
        if self._moved_by_another():
            gc.collect()  # one that only a cycle of references holds cannot be stepped, and is gone
        if names := self._moved_by_another():
            raise RuntimeError(
                f"step: expected the only Rewirer of its layers; a newer one moves {names[0]!r}: step that one alone"
            )

    def _moved_by_another(self) -> list[str]:
        """Return the layers that a newer Rewirer moves."""
        movers = {name: _movers.get(units.host) for name, units in self.units.items()}  # copies of a model have none
        return [name for name, mover in movers.items() if mover is not None and mover() not in (self, None)]

    def _check_layers(self) -> None:
        now = units_of(self.model)
        for name, units in self.units.items():
            if name not in now or now[name].host is not units.host:
                raise RuntimeError(
                    f"step: expected the layers that this Rewirer was made for; {name!r} has been replaced (by "
                    "compact, expand or bake): build a new Rewirer, and load the state_dict of this one"
                )

    def _moving(self) -> list[str]:
        """Return the layers whose masks move: a frozen one would only lose weights."""
        return [name for name, units in self.units.items() if units.parameter.requires_grad]

    def _listen_when_due(self) -> None:
        if self.due and self.grow != "random":
            self._gradients.start()

    @torch.no_grad()
    def _rewire(self, gathered: Scores) -> bool:
        """Move weights and return True; or change nothing, where a score is not finite, and return False."""
        scores = {} if self.grow == "random" else self._scores(gathered)
        if not all(bool(score.isfinite().all()) for score in scores.values()):
            _log.info("orthosparse: step %d: the update waits, the dense gradients are not finite", self.taken)
            return False
        if self.grow == "momentum":
            self.momentum = self.momentum | scores
        share = cosine(self.fraction, self.taken, self.end)
        moving = self._moving() if self.grow == "random" else scores
        before = {name: mask for name, mask in masking.masks_of(self.model).items() if name in moving}
        after = {}
        for name, mask in before.items():
            block = self.units[name].block
            active = grid_of(mask, block)
            number = round(share * int(active.sum()))
            kept = drop_smallest(sizes_of(self.units[name].weight(), block), active, number)
            after[name] = tiled(self._grown(name, kept, number, scores, block), block, mask.shape)
        masking.replace_masks(self.model, after, optimizer=self.optimizer)
        self.moved = {name: int((after[name] & ~mask).sum()) for name, mask in before.items()}
        for name, number in self.moved.items():
            self.moved_in_all[name] += number
        _log.info("orthosparse: step %d: %d active weights moved", self.taken, sum(self.moved.values()))
        return True

    def _scores(self, gathered: Scores) -> Scores:
        """Return the scores that inactive weights are ranked by: the mean over the ranks, so that all agree."""
        moving, scores = self._moving(), {}
        if moving and not gathered:
            raise RuntimeError(
                "step: expected a forward and a backward pass, both since the last step; "
                f"layer {moving[0]!r} has no gradient"
            )
        for name in moving:
            local, units = gathered.pop(name, None), self.units[name]
            if local is None:  # only another rank may have used the layer in this step
                local = torch.zeros(units.like.shape, dtype=units.parameter.dtype, device=units.like.device)
            gradient = full_tensor(local).view(units.shape)
            # A sum of half precision gradients could overflow where the gradients do not.
            score = mean_over_ranks(precise(gradient), self.group)
            if not score.any():  # no rank has a gradient: growth would follow the order of the entries
                continue
            if self.grow == "momentum":
                score = direction_of(score)
                if name in self.momentum:
                    score = _MOMENTUM * self.momentum[name] + score
            scores[name] = score
        return scores

    def _grown(self, name: str, kept: torch.Tensor, number: int, scores: Scores, block: int) -> torch.Tensor:
        if self.grow == "random":
            generator = derive(self.seed, self.updates, name)
            return resize(kept, int(kept.sum()) + number, generator=generator).to(kept.device)
        return grow_largest(sizes_of(scores[name], block).reshape(kept.shape), kept, number)


def _check(*, every: int, steps: int, fraction: float, until: float) -> None:
    check_at_least(every, 1, "every")
    check_at_least(steps, 1, "steps")
    check_density(fraction, "fraction")
    check_density(until, "until")


def _held_by(optimizer: Any) -> set[int]:
    """Return the ids of the parameters that the optimizer trains."""
    if optimizer is None:
        raise TypeError("optimizer: expected a torch.optim.Optimizer; got None")
    check_optimizer(optimizer)
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError("optimizer: expected one with a state for each weight; got LBFGS, whose history mixes weights")
    return {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
