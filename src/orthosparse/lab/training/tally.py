"""What the steps of an epoch gave, kept on the device: written without waiting for it, read once."""

import torch
from torch import Tensor


class Tally:
    """Loss, gradient norm and hits of each step of an epoch.

    `add` works in place on tensors of fixed address, so a captured graph may hold it. A loss is a share: this rank's
    part of the sum over the batch, divided by the whole batch's size; ranks add up to the mean.
    """

    def __init__(self, steps: int, device: torch.device) -> None:
        self.values = torch.zeros(3, steps, device=device)
        self._next = torch.zeros(1, dtype=torch.int64, device=device)

    def add(self, loss: Tensor, norm: Tensor, hits: Tensor) -> None:
        """Note the next step."""
        row = torch.stack([loss.float(), norm.float(), hits.float()]).view(3, 1)
        self.values.index_copy_(1, self._next, row)
        self._next += 1

    def reset(self, values: Tensor | None = None) -> None:
        """Start an epoch anew, or go on after the steps whose `values` [3, done] are given."""
        self.values.zero_()
        self._next.zero_()
        if values is not None:
            self.values[:, : values.shape[1]].copy_(values)
            self._next.fill_(values.shape[1])
