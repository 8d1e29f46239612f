"""Sparse training that starts exactly orthogonal."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what editors and type checkers see
    from orthosparse import givens, init, isometry
    from orthosparse.archives import load_compact, save_compact
    from orthosparse.compacting import compact, expand
    from orthosparse.deploying import DeployedLayer, DeployTable, deploy
    from orthosparse.distributions import DISTRIBUTIONS
    from orthosparse.dynamic import Rewirer
    from orthosparse.front_door import sparsify
    from orthosparse.layers import Layer, find_layers
    from orthosparse.masking import (
        attach,
        bake,
        export_prune_masks,
        import_prune_masks,
        load_sparse,
        masks_of,
        replace_masks,
        to_semi_structured,
    )
    from orthosparse.masks import ScoredMasks, densities_of, overlap
    from orthosparse.modules.block import BlockConv1x1, BlockLinear
    from orthosparse.modules.convolution import SparseConv
    from orthosparse.modules.sparse import SparseConv1x1, SparseLinear
    from orthosparse.pruning import prune
    from orthosparse.report import Report
    from orthosparse.schemes import SCHEMES

__all__ = [
    "DISTRIBUTIONS",
    "SCHEMES",
    "BlockConv1x1",
    "BlockLinear",
    "DeployTable",
    "DeployedLayer",
    "Layer",
    "Report",
    "Rewirer",
    "ScoredMasks",
    "SparseConv",
    "SparseConv1x1",
    "SparseLinear",
    "attach",
    "bake",
    "compact",
    "densities_of",
    "deploy",
    "expand",
    "export_prune_masks",
    "find_layers",
    "givens",
    "import_prune_masks",
    "init",
    "isometry",
    "load_compact",
    "load_sparse",
    "masks_of",
    "overlap",
    "prune",
    "replace_masks",
    "save_compact",
    "sparsify",
    "to_semi_structured",
]

# The module of each public name, imported when the name is first used: importing torch takes seconds, and the help and
# shell completion of the command line do not need it. A name without an entry is itself a module.
_MODULES = {
    "DISTRIBUTIONS": "distributions",
    "SCHEMES": "schemes",
    "BlockConv1x1": "modules.block",
    "BlockLinear": "modules.block",
    "DeployTable": "deploying",
    "DeployedLayer": "deploying",
    "Layer": "layers",
    "Report": "report",
    "Rewirer": "dynamic",
    "ScoredMasks": "masks",
    "SparseConv": "modules.convolution",
    "SparseConv1x1": "modules.sparse",
    "SparseLinear": "modules.sparse",
    "attach": "masking",
    "bake": "masking",
    "compact": "compacting",
    "densities_of": "masks",
    "deploy": "deploying",
    "expand": "compacting",
    "export_prune_masks": "masking",
    "find_layers": "layers",
    "import_prune_masks": "masking",
    "load_compact": "archives",
    "load_sparse": "masking",
    "masks_of": "masking",
    "overlap": "masks",
    "prune": "pruning",
    "replace_masks": "masking",
    "save_compact": "archives",
    "sparsify": "front_door",
    "to_semi_structured": "masking",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"{__name__}.{_MODULES.get(name, name)}")
    globals()[name] = value = getattr(module, name) if name in _MODULES else module
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
