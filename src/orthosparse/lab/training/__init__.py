"""Training: a description of a run, one loop for one network or a stack of them, checkpoints, and metrics.

Names are imported when they are first used, so that reading a description does not import torch and Fabric.
"""

from importlib import import_module
from typing import Any

_HOMES = {
    "DYNAMICS": "run",
    "LOGS": "callbacks",
    "RECIPES": "recipe",
    "Callback": "callbacks",
    "NonFiniteError": "state",
    "Progress": "callbacks",
    "Recipe": "recipe",
    "Run": "run",
    "State": "state",
    "assemble": "assembly",
    "fit": "loop",
    "launch": "devices",
    "learning_rate": "recipe",
    "recipe_for": "run",
    "train": "rows",
    "train_many": "rows",
}
__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    return value
