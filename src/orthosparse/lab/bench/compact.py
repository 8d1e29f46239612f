"""How much faster layers are that hold only their active weights, against dense and masked ones in the same run."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from orthosparse.hardware import on_threads
from orthosparse.lab.bench import compact_blocks, compact_convolutions, compact_entries


@dataclass(frozen=True)
class Row:
    """One ratio: how many times as fast the sparse form is, or what share of the memory it takes.

    Attributes:
        target: what the ratio has to be, at least, or, of memory, at most; None where nothing is promised.
        detail: the times behind it, and what else is worth saying.
    """

    check: str
    case: str
    ratio: float
    target: float | None
    detail: str = ""
    at_most: bool = False

    @property
    def verdict(self) -> str:
        """``ok`` or ``MISSED``, or nothing where nothing is promised."""
        if self.target is None:
            return ""
        kept = self.ratio <= self.target if self.at_most else self.ratio >= self.target
        return f"{'<=' if self.at_most else '>='} {self.target:g} {'ok' if kept else 'MISSED'}"


CHECKS = {
    "blocks": compact_blocks.against_dense,
    "break_even": compact_blocks.break_even,
    "others": compact_blocks.against_others,
    "configs": compact_blocks.configs,
    "entries": compact_entries.against_dense,
    "entries_forward": compact_entries.forward,
    "entries_break_even": compact_entries.break_even,
    "training_step": compact_entries.training_step,
    "convolutions": compact_convolutions.against_dense,
    "convolutions_step": compact_convolutions.training_step,
}


def run(checks: Sequence[str] = tuple(CHECKS), *, device: torch.device, quick: bool = False) -> Iterator[Row]:
    """Yield the rows of the named checks: those of blocks on a GPU, those of entries on the CPU, on one thread."""
    for name in checks:
        check = CHECKS[name]
        if check.__module__ == compact_blocks.__name__:
            if device.type == "cuda" or quick:
                yield from (Row(name, *found) for found in check(device, quick))
            continue
        with on_threads(1):
            yield from (Row(name, *found) for found in check(device, quick))


def line(row: Row) -> str:
    """Return a row as a line of the table."""
    return f"{row.check:19s}{row.case:44s}{row.ratio:8.3f}x {row.verdict:14s} {row.detail}".rstrip()
