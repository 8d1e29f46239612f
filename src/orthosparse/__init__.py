"""Sparse training that starts exactly orthogonal."""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what editors and type checkers see
    from orthosparse import givens, init, isometry
    from orthosparse.distributions import DISTRIBUTIONS
    from orthosparse.dynamic import Rewirer
    from orthosparse.layers import Layer, find_layers
    from orthosparse.masking import bake, load_sparse, masks_of, replace_masks
    from orthosparse.masks import densities_of, overlap
    from orthosparse.pruning import export_prune_masks, import_prune_masks
    from orthosparse.report import Report
    from orthosparse.schemes import SCHEMES
    from orthosparse.sparsify import sparsify

__all__ = [
    "DISTRIBUTIONS",
    "SCHEMES",
    "Layer",
    "Report",
    "Rewirer",
    "bake",
    "densities_of",
    "export_prune_masks",
    "find_layers",
    "givens",
    "import_prune_masks",
    "init",
    "isometry",
    "load_sparse",
    "masks_of",
    "overlap",
    "replace_masks",
    "sparsify",
]

# The file of each public name, imported when the name is first used: torch takes seconds, and the program's help and
# the completion of its words in a shell have no use for it. A name without an entry is a file itself.
_HOMES = {
    "DISTRIBUTIONS": "distributions",
    "SCHEMES": "schemes",
    "Layer": "layers",
    "Report": "report",
    "Rewirer": "dynamic",
    "bake": "masking",
    "densities_of": "masks",
    "export_prune_masks": "pruning",
    "find_layers": "layers",
    "import_prune_masks": "pruning",
    "load_sparse": "masking",
    "masks_of": "masking",
    "overlap": "masks",
    "replace_masks": "masking",
    "sparsify": "sparsify",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = import_module(f"{__name__}.{_HOMES.get(name, name)}")
    globals()[name] = found = getattr(home, name) if name in _HOMES else home
    return found


def __dir__() -> list[str]:
    return sorted(__all__)


class _Package(ModuleType):
    """This package as a module: importing the file `sparsify` does not hide the function of that name."""

    def __setattr__(self, name: str, value: Any) -> None:
        hides = name == "sparsify" and isinstance(value, ModuleType)
        super().__setattr__(name, value.sparsify if hides else value)


sys.modules[__name__].__class__ = _Package
