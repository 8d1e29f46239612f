"""Block-sparse matrices for tests, and the dense ones that they are."""

from dataclasses import dataclass

import torch

from orthosparse.operators import plan_of


@dataclass
class Blocks:
    """A drawn block-sparse weight: its active blocks, their plan, and the shape of the whole."""

    values: torch.Tensor
    plan: torch.Tensor
    active: torch.Tensor

    @property
    def shape(self):
        size = self.values.shape[1]
        return self.active.shape[0] * size, self.active.shape[1] * size

    def dense(self, values=None):
        """Return the whole matrix."""
        values = self.values if values is None else values
        size = values.shape[1]
        whole = values.new_zeros(*self.active.shape, size, size)
        whole[self.active.nonzero(as_tuple=True)] = values
        return whole.transpose(1, 2).reshape(self.shape)

    def cut(self, dense):
        """Return the active blocks of a whole matrix."""
        size = self.values.shape[1]
        rows, columns = self.active.shape
        return dense.reshape(rows, size, columns, size).transpose(1, 2)[self.active]


def draw(grid, size, density, generator, dtype=torch.float32, device="cpu"):
    """Draw about so many blocks; the first row and the last column of the grid stay empty where there are others."""
    active = torch.rand(grid, generator=generator) < density
    if min(grid) > 1:
        active[0], active[:, -1] = False, False
        active[1, 0] = True
    rows, columns = active.nonzero(as_tuple=True)
    values = torch.randn(len(rows), size, size, generator=generator, dtype=torch.float64) / size**0.5
    plan = plan_of(rows, columns, grid=grid, size=size)
    return Blocks(values.to(device, dtype), plan.to(device), active.to(device))
