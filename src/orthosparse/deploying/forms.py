"""The forms that a layer can have for inference: dense in both memory formats, single entries, blocks, 2:4."""

from copy import deepcopy

import torch
from torch import nn

from orthosparse.compacting.forms import Candidate, build, has_taps, why_special
from orthosparse.deploying.copies import in_format
from orthosparse.deploying.folding import Layer
from orthosparse.deploying.modules import EntriesConv, EntriesLinear
from orthosparse.deploying.tracing import first_line
from orthosparse.masking.formats import semi_structured
from orthosparse.operators import SIZES, has_convolutions
from orthosparse.structures import ENTRIES, TWO_OF_FOUR, means_of, tiled

DENSE, CHANNELS_LAST = "dense", "dense channels-last"
_MOST = 0.5  # no sparse form is faster above this density
_FILLED = 0.9  # blocks are tried if at least this fraction of the weights in them is nonzero; else entries do as well


def forms_of(name: str, layer: Layer) -> tuple[dict[str, nn.Module], str]:
    """Return a module for each form that `layer` can have, and why sparse forms are missing."""
    forms: dict[str, nn.Module] = {DENSE: layer}
    if note := why_special(layer):
        return forms, note
    if layer.weight.dim() == 4:
        forms = {
            DENSE: in_format(layer, torch.contiguous_format),
            CHANNELS_LAST: in_format(layer, torch.channels_last),
        }
    active = layer.weight != 0
    density = int(active.sum()) / max(1, active.numel())
    if density > _MOST:
        return forms, f"density {density:.2f}"
    notes = []
    if isinstance(layer, nn.Linear) and layer.weight.is_cuda and fits_two_of_four(active):
        try:
            forms[TWO_OF_FOUR] = _semi_structured(layer)
        except RuntimeError as error:  # torch has no kernel for this dtype or shape
            notes.append(f"2:4: {first_line(error)}")
    if not has_taps(layer) and (found := _blocks_of(active)):
        block, mask = found
        forms[f"block:{block}"] = build(Candidate(name, layer, "weight", mask, f"block:{block}"))
    if note := _without_entries(layer):
        notes.append(note)
    else:
        forms[ENTRIES] = EntriesLinear(layer) if isinstance(layer, nn.Linear) else EntriesConv(layer)
    return forms, "; ".join(notes)


def fits_two_of_four(active: torch.Tensor) -> bool:
    """Whether at most two of every aligned four weights of a row are nonzero (active weights of 2:4 may be zero)."""
    return active.shape[1] % 4 == 0 and bool((active.unflatten(1, (-1, 4)).sum(2) <= 2).all())


def _blocks_of(active: torch.Tensor) -> tuple[int, torch.Tensor] | None:
    """Return the side of the largest blocks that are nearly full of nonzero weights, and the mask of these blocks."""
    matrix, number = active.flatten(1), int(active.sum())
    for block in sorted(SIZES, reverse=True):
        if all(side % block == 0 for side in matrix.shape):
            grid = means_of(matrix.float(), block) > 0
            if 0 < _FILLED * block**2 * int(grid.sum()) <= number:
                return block, tiled(grid, block, active.shape)
    return None


def _without_entries(layer: Layer) -> str:
    """Say why a layer has no form of single entries, if so."""
    device, dtype = layer.weight.device.type, layer.weight.dtype
    if isinstance(layer, nn.Linear) and device == "cuda":
        return ""
    if device != "cpu" or dtype not in (torch.float32, torch.float64):
        return f"no kernel for entries on {device} in {str(dtype).removeprefix('torch.')}"
    if isinstance(layer, nn.Linear):
        return ""
    if not has_convolutions():
        return "no kernel for convolutions: the package was built without a compiler"
    plain = layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
    return "" if plain else f"padding {layer.padding}, {layer.padding_mode}"


def _semi_structured(layer: nn.Linear) -> nn.Module:
    new = deepcopy(layer)
    new.weight = nn.Parameter(semi_structured(layer.weight), requires_grad=False)
    return new
