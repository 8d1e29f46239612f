"""The base of modules that hold only active weights: the indices of the units, how they move, and the state dict.

A unit is an entry or a block. The state dict has ``values``, ``bias`` (if there is one), and two int32 buffers that
hold the indices of the units as in a CSR matrix, both counted in units: ``columns``, and ``row_starts``, the offset of
each row in ``columns``. All other tables that the products need are computed from these two.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn import functional

from orthosparse.checks import check_at_least, check_flag


class Compact(nn.Module):
    """The base of modules that hold only active weights; ``values[k]`` belongs to the k-th unit, row by row.

    Attributes:
        unit: number of rows and columns of a unit: 1 for entries.
        grid: number of rows and columns of the weight, counted in units.
        listener: called with the whole weight, whose gradient is dense; the product uses what it returns. torch
            compiles one graph with a listener and one without. Copies have none.
        carried: names of attributes that others had set on the layer that it replaces, and that it has too.
    """

    listener: Callable[[Tensor], Tensor] | None = None
    carried: tuple[str, ...] = ()

    values: nn.Parameter
    bias: nn.Parameter | None
    row_starts: Tensor
    columns: Tensor

    def __init__(
        self,
        in_features: int,
        out_features: int,
        units: int,
        unit: int,
        *,
        bias: bool,
        device: Any,
        dtype: torch.dtype | None,
    ) -> None:
        for name, number in (("in_features", in_features), ("out_features", out_features)):
            check_at_least(number, 0, name)
        check_flag(bias, "bias")
        super().__init__()
        self.in_features, self.out_features, self.unit = in_features, out_features, unit
        self.grid = out_features // unit, in_features // unit
        room = self.grid[0] * self.grid[1]
        if not 0 <= units <= room:
            argument = "entries" if unit == 1 else "blocks"
            raise ValueError(f"{argument}: expected at most {room}, as many as the weight has; got {units}")
        values = (1, units) if unit == 1 else (units, unit, unit)
        self.values = nn.Parameter(torch.zeros(values, device=device, dtype=dtype))
        self.register_parameter(
            "bias", nn.Parameter(torch.zeros(out_features, device=device, dtype=dtype)) if bias else None
        )
        indices = self._spread(units, device)
        self.register_buffer("row_starts", torch.zeros(self.grid[0] + 1, dtype=torch.int32, device=device))
        self.register_buffer("columns", (indices % self.grid[1]).to(torch.int32))
        self.row_starts.copy_(self._row_starts(indices))

    @property
    def units(self) -> int:
        """How many units are active."""
        return len(self.columns)

    @property
    def density(self) -> float:
        """The fraction of weights that are active."""
        return self.units / max(1, self.grid[0] * self.grid[1])

    @property
    def weight(self) -> Tensor:
        """The whole weight, zeros included: computed, differentiable, and not to be assigned to."""
        return self.dense_matrix().view(self.weight_shape)

    @property
    def active(self) -> Tensor:
        """Which units are active, a bool tensor of the shape of the grid."""
        active = torch.zeros(self.grid, dtype=torch.bool, device=self.columns.device)
        active[self.rows().long(), self.columns.long()] = True
        return active

    @property
    def weight_mask(self) -> Tensor:
        """Which weights are active, a bool tensor of the shape of the weight."""
        mask = self.active.repeat_interleave(self.unit, 0).repeat_interleave(self.unit, 1)
        return mask.view(self.weight_shape)

    @property
    def weight_shape(self) -> tuple[int, ...]:
        """The shape of the whole weight."""
        return self.out_features, self.in_features

    def plain(self) -> nn.Module:
        """Return the layer of torch that computes the same, on the meta device and without a bias."""
        return nn.Linear(self.in_features, self.out_features, bias=False, device="meta")

    def rows(self) -> Tensor:
        """Return the row of each unit."""
        counts = self.row_starts.diff()
        rows = torch.arange(self.grid[0], dtype=torch.int32, device=counts.device)
        return rows.repeat_interleave(counts, output_size=self.units)

    def gather(self, whole: Tensor) -> Tensor:
        """Return what a tensor of the weight's shape holds at the active units, in the shape of `values`."""
        units = whole.reshape(self.grid[0], self.unit, self.grid[1], self.unit).transpose(1, 2)
        return units[self.rows().long(), self.columns.long()].view(self.values.shape)

    def scatter(self, held: Tensor, *, start: float = 0.0) -> Tensor:
        """Return what is `held` in the shape of `values` in that of the whole weight, with `start` elsewhere."""
        units = held.new_full((*self.grid, self.unit, self.unit), start)
        units = units.index_put((self.rows().long(), self.columns.long()), held.view(-1, self.unit, self.unit))
        return units.transpose(1, 2).reshape(self.weight_shape)

    def indices_of(self, mask: Tensor) -> Tensor:
        """Return the flat indices of the active units of a mask of the weight's shape.

        Raises:
            ValueError: only a part of a unit is active, or the number of units is not that of this module.
        """
        parts = mask.reshape(self.grid[0], self.unit, self.grid[1], self.unit)
        some, whole = parts.any(3).any(1), parts.all(3).all(1)
        if not torch.equal(some, whole):
            raise ValueError(f"expected whole blocks of {self.unit}; got parts of {int((some & ~whole).sum())} of them")
        count = int(whole.count_nonzero())
        if count != self.units:
            raise ValueError(f"expected {self.units} active units, as many as there are values; got {count}")
        return whole.flatten().nonzero()[:, 0]

    def refresh(self) -> None:
        """Compute the tables that the products need, after `row_starts` and `columns` were written."""
        raise NotImplementedError

    def indices(self) -> Tensor:
        """Return the flat indices of the units in the grid, row by row."""
        return self.rows().long() * self.grid[1] + self.columns

    @torch.no_grad()
    def _row_starts(self, indices: Tensor) -> Tensor:
        from orthosparse.operators import starts_of  # triton comes along, which takes longer to import than all else

        return starts_of(indices // self.grid[1], self.grid[0])

    def _spread(self, units: int, device: Any) -> Tensor:
        """Return evenly spread indices, which hold until `move` or a state dict sets others."""
        return torch.arange(units, device=device) * (self.grid[0] * self.grid[1]) // max(units, 1)

    def _write(self, indices: Tensor) -> None:
        self.columns.copy_(indices % self.grid[1])
        self.row_starts.copy_(self._row_starts(indices))
        self.refresh()

    def move(self, indices: Tensor) -> Tensor:
        """Make other units active, as many as before, in place; return the previous position of each, or -1 if new.

        Tensors with one element per unit, such as `values`, are not moved: pass them and the result to `follow`.

        Args:
            indices: flat indices in the grid, in increasing order.

        Raises:
            ValueError: the number of units changes, or the indices are outside the grid or do not increase.
        """
        room, before = self.grid[0] * self.grid[1], self.indices()
        indices = indices.to(before.device, torch.int64)
        inside = len(indices) == len(before) and bool(((indices >= 0) & (indices < room)).all())
        if indices.dim() != 1 or not inside or not bool((indices.diff() > 0).all()):
            raise ValueError(f"indices: expected {len(before)} increasing integers below {room}; got {indices}")
        self._write(indices)
        if not len(indices):
            return indices
        source = torch.searchsorted(before, indices).clamp(max=len(before) - 1)
        return torch.where(before[source] == indices, source, -1)

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - as torch's layers call it
        """Return ``input @ weight.T + bias``."""
        if not self.needs_dense():
            return self.product(input)
        return functional.linear(input, self.dense_matrix(), self.bias)

    def needs_dense(self) -> bool:
        """Whether the dense gradient is listened to, or needed: no rule exists for torch.func and forward mode."""
        if self.listener is not None:
            return True
        if torch.compiler.is_compiling():
            return False
        return forward_ad._current_level >= 0 or torch._C._functorch.peek_interpreter_stack() is not None

    def dense_matrix(self) -> Tensor:
        """Return the whole weight as a matrix, as the listener returns it if there is one."""
        matrix = self.scatter(self.values).view(self.out_features, self.in_features)
        return matrix if self.listener is None else self.listener(matrix)

    def product(self, x: Tensor) -> Tensor:
        """Return ``x @ weight.T + bias`` by the active weights alone."""
        raise NotImplementedError

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "listener"}

    def extra_repr(self) -> str:
        """Return sizes and density."""
        unit = "" if self.unit == 1 else f", unit={self.unit}"
        sizes = f"in_features={self.in_features}, out_features={self.out_features}"
        return f"{sizes}, bias={self.bias is not None}, density={self.density:.4g}{unit}"

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "Compact":
        before = dict(self._buffers)
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        lost = False
        for name, old in before.items():
            buffer = self._buffers[name]
            assert buffer is not None
            assert old is not None
            self._buffers[name] = buffer = buffer.to(torch.int32)  # Module.type() casts every buffer
            if not old.is_meta and buffer is not old:
                buffer.copy_(old)  # Module.to_empty() brings nothing along
            lost = lost or (old.is_meta and not buffer.is_meta)
        if lost:
            self._write(self._spread(self.units, self.columns.device))
        return self

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *args: Any) -> None:
        errors: list[str] = args[-1]
        reason = self.why_unloadable(state.get(f"{prefix}row_starts"), state.get(f"{prefix}columns"))
        if reason:
            errors.append(f"{prefix}columns, {prefix}row_starts: {reason}")
            return
        super()._load_from_state_dict(state, prefix, *args)
        self.row_starts, self.columns = self.row_starts.to(torch.int32), self.columns.to(torch.int32)  # if assigned
        if not self.columns.is_meta:
            self.refresh()

    def why_unloadable(self, starts: Tensor | None, columns: Tensor | None) -> str:
        """Say why these cannot be `row_starts` and `columns` of this module, if so: kernels would read past an end."""
        if starts is None and columns is None:
            return ""  # strict loading reports missing keys
        if starts is None or columns is None:
            return "expected both"
        if starts.shape != self.row_starts.shape or columns.shape != self.columns.shape:
            return (
                f"expected {len(self.columns)} units in {len(self.row_starts) - 1} rows; "
                f"got columns of shape {tuple(columns.shape)} and row starts of {tuple(starts.shape)}"
            )
        if starts.is_meta or columns.is_meta:
            return ""
        if starts.is_floating_point() or columns.is_floating_point():
            return f"expected integers; got {starts.dtype}, {columns.dtype}"
        counts = starts.long().diff()
        ends = int(starts[0]) == 0 and int(starts[-1]) == len(columns) and bool((counts >= 0).all())
        if not ends:
            return f"expected row starts that increase from 0 to {len(columns)}"
        rows = torch.arange(len(counts), device=counts.device).repeat_interleave(counts)
        inside = bool(((columns >= 0) & (columns < self.grid[1])).all())
        if not inside or not bool(((rows * self.grid[1] + columns).diff() > 0).all()):
            return f"expected columns that increase in every row and are below {self.grid[1]}"
        return ""


@torch.no_grad()
def follow(held: Tensor, source: Tensor, *, start: float = 0.0) -> None:
    """Move the part of `held` that belongs to each unit, in its first or (``[1, entries]``) last dimension, in place.

    Args:
        source: what `Compact.move` returned.
        start: the value for new units.
    """
    units = held.view(len(source), -1) if held.dim() > 2 else held.view(-1, 1)
    units.copy_(torch.where(source[:, None] < 0, start, units[source.clamp(min=0)]))
