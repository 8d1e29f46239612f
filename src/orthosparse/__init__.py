"""Sparse training that starts exactly orthogonal."""

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
