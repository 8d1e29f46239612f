"""What the steps of an epoch gave, kept on the device: written without waiting for it, read once."""

import torch
from torch import Tensor


class Records:
    """Loss, gradient norm and hits of each step of an epoch, for each network.

    `add` works in place on tensors of fixed address, so that a captured graph may hold it.

    Attributes:
        values: loss, gradient norm and hits, ``[3, steps, networks]``.
        alive: networks whose losses and gradients were finite so far; the others are not updated any more.
        stopped: the step, since the start of the run, at which a network stopped; -1 for none.
        clock: steps since the start of the run.
    """

    def __init__(self, steps: int, networks: int, device: torch.device) -> None:
        self.values = torch.zeros(3, steps, networks, device=device)
        self.alive = torch.ones(networks, dtype=torch.bool, device=device)
        self.stopped = torch.full((networks,), -1, dtype=torch.int64, device=device)
        self.clock = torch.zeros(1, dtype=torch.int64, device=device)

    def add(self, losses: Tensor, norms: Tensor, hits: Tensor) -> None:
        """Note the next step; a network that gave what is not finite has stopped from this step on."""
        finite = torch.isfinite(losses) & torch.isfinite(norms)
        self.stopped.copy_(torch.where(self.alive & ~finite, self.clock, self.stopped))
        self.alive &= finite
        row = torch.stack([losses.float(), norms.float(), hits.float()]).unsqueeze(1)
        self.values.index_copy_(1, self.clock % self.values.shape[1], row)
        self.clock += 1
