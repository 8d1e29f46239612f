"""Masked layers exchanged for modules that hold only their active weights, measured or as told, and back."""

from orthosparse.compacting.exchanged import compact, expand
from orthosparse.compacting.table import CompactTable, Form

__all__ = ["CompactTable", "Form", "compact", "expand"]
