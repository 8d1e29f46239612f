"""An ensemble between two steps: the stacked weights, who is still alive, and what the epochs so far have given."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from orthosparse.lab.data import Loader
from orthosparse.lab.training.ensemble.feed import Feed
from orthosparse.lab.training.ensemble.network import Network
from orthosparse.lab.training.ensemble.slab import Weights
from orthosparse.lab.training.nonfinite import NonFiniteError
from orthosparse.lab.training.recipe import Recipe, learning_rate
from orthosparse.lab.training.run import Run

if TYPE_CHECKING:
    from orthosparse.lab.training.ensemble.moving import Moving


class Records:
    """What the steps of an epoch gave, by member, on the device: written without waiting for it, read once.

    Attributes:
        values: loss, gradient norm and hits, ``[3, steps, members]``.
        alive: members whose losses and gradients were finite so far.
        stopped: the step, since the start of the run, at which one of them was not; -1 for none.
        clock: steps since the start of the run.
    """

    def __init__(self, steps: int, members: int, device: torch.device) -> None:
        self.values = torch.zeros(3, steps, members, device=device)
        self.alive = torch.ones(members, dtype=torch.bool, device=device)
        self.stopped = torch.full((members,), -1, dtype=torch.int64, device=device)
        self.clock = torch.zeros(1, dtype=torch.int64, device=device)

    def add(self, losses: Tensor, norms: Tensor, hits: Tensor) -> None:
        """Note the next step; a member that gave what is not finite is dead from this step on."""
        finite = torch.isfinite(losses) & torch.isfinite(norms)
        self.stopped.copy_(torch.where(self.alive & ~finite, self.clock, self.stopped))
        self.alive &= finite
        row = torch.stack([losses.float(), norms.float(), hits.float()]).unsqueeze(1)
        self.values.index_copy_(1, self.clock % self.values.shape[1], row)
        self.clock += 1


@dataclass
class Ensemble:
    """Step `step` of epoch `epoch` comes next, for all members.

    Attributes:
        rate: the learning rate, on the device.
        histories: for each member, the metrics of the epochs that it finished.
        errors: of members that have stopped, as a run alone would have raised them.
        seconds: spent so far, earlier parts of a resumed run included.
        moving: the members whose masks move; None without any.
    """

    configs: list[Run]
    network: Network
    slabs: Sequence[Weights]
    feed: Feed
    test: Loader
    validation: Loader | None
    device: torch.device
    epoch: int = 0
    step: int = 0
    histories: list[list[dict[str, float]]] = field(default_factory=list)
    errors: dict[int, NonFiniteError] = field(default_factory=dict)
    seconds: float = 0.0
    moving: "Moving | None" = None
    records: Records = field(init=False)
    rate: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.records = Records(len(self.feed), len(self.configs), self.device)
        self.rate = torch.zeros((), device=self.device)  # float32, as the optimizers of single runs have it
        self.histories = self.histories or [[] for _ in self.configs]

    @property
    def recipe(self) -> Recipe:
        """What all members share; their starts differ."""
        return self.configs[0].recipe

    @property
    def dtype(self) -> torch.dtype:
        """In which weights and losses are kept; products may be computed in another."""
        return self.slabs[0].weight.value.dtype

    @property
    def steps_done(self) -> int:
        """Steps since the start of the run."""
        return self.epoch * len(self.feed) + self.step

    def set_rate(self) -> float:
        """Set the rate of this epoch, and return it."""
        rate = learning_rate(self.recipe, self.epoch)
        self.rate.fill_(rate)  # in place: a captured graph reads it
        return rate

    def state_of(self, member: int) -> dict[str, Tensor]:
        """Return the state dict that a member's network would have alone."""
        return {name: tensor for slab in self.slabs for name, tensor in slab.state_of(member)}
