"""Replace masked layers with modules that hold only their active weights, measured or on request, and back."""

from orthosparse.compacting.exchanged import compact, expand
from orthosparse.compacting.table import CompactTable, Form

__all__ = ["CompactTable", "Form", "compact", "expand"]
