"""The forms that a layer can have for inference: dense in both memory formats, single entries, blocks, 2:4."""

from copy import deepcopy

import torch
from torch import Tensor, nn

from orthosparse.compacting.forms import Candidate, build
from orthosparse.deploying.copies import in_format
from orthosparse.deploying.folding import CONVOLUTIONS, Layer, pads
from orthosparse.operators import SIZES
from orthosparse.structures import TWO_OF_FOUR, block_of, structure_of

DENSE, CHANNELS_LAST = "dense", "dense channels-last"
_MOST = 0.5  # no sparse form is faster above this density


def forms_of(name: str, layer: Layer) -> tuple[dict[str, nn.Module], str]:
    """Return the modules that compute what `layer` does, by form, and why there is no sparse one among them."""
    forms: dict[str, nn.Module] = {DENSE: layer}
    if layer.weight.dim() == 4:
        forms = {
            DENSE: in_format(layer, torch.contiguous_format),
            CHANNELS_LAST: in_format(layer, torch.channels_last),
        }
    active = layer.weight != 0
    if note := _why_dense(layer, active):
        return forms, note
    structure = structure_of(active)
    if structure == TWO_OF_FOUR and layer.weight.is_cuda:
        forms[TWO_OF_FOUR] = _semi_structured(layer)
    if (block := min(block_of(structure), max(SIZES))) > 1:
        forms[f"block:{block}"] = build(Candidate(name, layer, "weight", active, f"block:{block}"))
    if _has_entries(layer.weight):
        forms["entries"] = build(Candidate(name, layer, "weight", active, "entries"))
    return forms, "" if len(forms) > 2 or set(forms) - {DENSE, CHANNELS_LAST} else _no_kernel(layer.weight)


def _why_dense(layer: Layer, active: Tensor) -> str:
    """Say why a layer has only dense forms, if so."""
    if isinstance(layer, CONVOLUTIONS) and (set(layer.kernel_size) != {1} or layer.groups > 1 or pads(layer)):
        return "a convolution of several taps, with padding or groups"
    density = float(active.sum()) / max(1, active.numel())
    return f"density {density:.2f}" if density > _MOST else ""


def _has_entries(weight: Tensor) -> bool:
    return weight.device.type == "cpu" and weight.dtype in (torch.float32, torch.float64)


def _no_kernel(weight: Tensor) -> str:
    return f"no kernel for single entries on {weight.device.type} in {str(weight.dtype).removeprefix('torch.')}"


def _semi_structured(layer: Layer) -> nn.Module:
    new = deepcopy(layer)
    new.weight = nn.Parameter(torch.sparse.to_sparse_semi_structured(layer.weight), requires_grad=False)
    return new
