"""Masks on a model: attach, read, replace, bake and load them; the only user of torch's parametrizations.

A mask is a parametrization of one tensor. ``module.weight`` is computed from the original parameter; where the mask is
False, its values and gradients are exactly zero. The state dict holds ``weight`` and ``weight_mask``.
"""

from orthosparse.masking.attach import (
    attach,
    check_maskable,
    is_sparsified,
    masked_layers,
    masks_of,
    synchronize,
)
from orthosparse.masking.exchange import compact_modules, on_masked_forms
from orthosparse.masking.formats import export_prune_masks, import_prune_masks, to_semi_structured
from orthosparse.masking.loading import load_sparse
from orthosparse.masking.replace import bake, replace_masks

__all__ = [
    "attach",
    "bake",
    "check_maskable",
    "compact_modules",
    "export_prune_masks",
    "import_prune_masks",
    "is_sparsified",
    "load_sparse",
    "masked_layers",
    "masks_of",
    "on_masked_forms",
    "replace_masks",
    "synchronize",
    "to_semi_structured",
]
