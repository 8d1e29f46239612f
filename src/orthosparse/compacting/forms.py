"""Which form a layer can have: blocks or entries by what its mask consists of, or neither and why."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from orthosparse.compacting.table import MASKED
from orthosparse.layers import TRANSPARENT, leaf
from orthosparse.masking.attach import masked_owners_of
from orthosparse.masking.masked_tensor import MaskedTensor, masked_tensors
from orthosparse.modules.block import BlockConv1x1, BlockLinear
from orthosparse.modules.compact_module import Compact
from orthosparse.modules.convolution import SparseConv
from orthosparse.modules.sparse import SparseConv1x1, SparseLinear
from orthosparse.operators import SIZES, has_convolutions, has_kernel
from orthosparse.structures import block_of, structure_of

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


@dataclass(frozen=True, eq=False)
class Candidate:
    """A layer that may be replaced.

    Attributes:
        mask: its mask; None for a layer without one, whose active units come from a state dict.
        form: ``block:64``, ``entries``, or ``masked`` if it cannot be replaced.
        note: why it cannot be replaced.
        index: ``row_starts`` and ``columns`` of the units, if they come from a state dict.
    """

    name: str
    module: nn.Module
    tensor: str
    mask: Tensor | None
    form: str
    note: str = ""
    index: tuple[Tensor, Tensor] | None = None

    @property
    def parameter(self) -> nn.Parameter:
        """The parameter that an optimizer holds."""
        return leaf(self.module, self.tensor)

    @property
    def units(self) -> int:
        """How many units are active."""
        if self.mask is None:
            return 0 if self.index is None else len(self.index[1])
        return int(self.mask.count_nonzero()) // unit_of(self.form) ** 2


def candidates_of(model: nn.Module) -> list[Candidate]:
    """Return every masked tensor of `model`, with the form it can have.

    Raises:
        ValueError: a mask on the meta device, which says of no weight whether it is active.
    """
    found, apart = [], _apart(model)
    for name, owners in masked_owners_of(model).items():
        (module, tensor), *tied = owners
        masked = dict(masked_tensors(module))[tensor]
        if masked.holder.mask.is_meta:
            raise ValueError(f"model: expected masks that lie in memory; that of {name!r} is on the meta device")
        note = f"tied to {len(tied)} more" if tied else _why_not(apart, module, tensor, masked)
        note = note or ("every weight is active" if bool(masked.holder.mask.all()) else "")
        form = MASKED if note else "entries" if has_taps(module) else form_of(masked.holder.mask)
        note = note or _without_kernel(form, module, masked.original)
        found.append(Candidate(name, module, tensor, masked.holder.mask, MASKED if note else form, note))
    return found


def form_of(mask: Tensor) -> str:
    """Return the largest blocks that a mask consists of, as ``block:64``; else ``entries``.

    Example:
        >>> form_of(torch.kron(torch.eye(2), torch.ones(64, 64)).bool()), form_of(torch.eye(64).bool())
        ('block:64', 'entries')
    """
    block = min(block_of(structure_of(mask)), max(SIZES))
    return "entries" if block == 1 else f"block:{block}"


def unit_of(form: str) -> int:
    """Return rows and columns of the units of a form.

    Raises:
        ValueError: not a form.
    """
    kind, _, size = form.partition(":")
    if form == "entries":
        return 1
    if kind == "block" and size.isdigit() and int(size) in SIZES:
        return int(size)
    raise ValueError(f"like: expected forms 'entries' and 'block:SIZE', SIZE one of {SIZES}; got {form!r}")


@torch.no_grad()
def build(candidate: Candidate) -> Compact:
    """Return the module of active weights for a layer, with its weights, its bias and their gradients."""
    module, weight = candidate.module, candidate.parameter
    new = _empty(candidate)
    new.bias = module.bias  # type: ignore[assignment]
    new.values.requires_grad_(weight.requires_grad)
    if weight.is_meta:
        return new
    if candidate.mask is not None:
        new.move(new.indices_of(candidate.mask))
    elif candidate.index is not None:
        starts, columns = (each.to(weight.device).long() for each in candidate.index)
        rows = torch.arange(len(starts) - 1, device=weight.device).repeat_interleave(starts.diff())
        new.move(rows * new.grid[1] + columns)
    new.values.copy_(new.gather(weight))
    if weight.grad is not None:
        new.values.grad = new.gather(weight.grad)
    return new


def _empty(candidate: Candidate) -> Compact:
    """A module of the right kind and sizes, without a bias."""
    weight, unit = candidate.parameter, unit_of(candidate.form)
    sizes = (weight.shape[1], weight.shape[0], candidate.units, *([] if unit == 1 else [unit]))
    options: dict[str, Any] = {"bias": False, "device": weight.device, "dtype": weight.dtype}
    module: Any = candidate.module
    if isinstance(module, nn.Linear):
        return (SparseLinear if unit == 1 else BlockLinear)(*sizes, **options)
    if has_taps(module):
        if unit > 1:
            raise ValueError("expected single entries, as a convolution of several taps has them; got blocks")
        names = ("stride", "padding", "dilation", "groups", "padding_mode")
        options |= {name: getattr(module, name) for name in names}
        return SparseConv(module.in_channels, module.out_channels, module.kernel_size, candidate.units, **options)
    return (SparseConv1x1 if unit == 1 else BlockConv1x1)(*sizes, stride=module.stride, **options)


def layer_without_mask(model: nn.Module, name: str, form: str, state: Mapping[str, Any]) -> Candidate:
    """Return a layer that has no mask, as one whose units a state dict names.

    Raises:
        ValueError: no such layer, one that can only be as it is, or one of which the state dict does not say where the
            units lie.
    """
    modules = dict(model.named_modules(remove_duplicate=False))
    if name not in modules or "weight" not in modules[name]._parameters:
        raise ValueError(f"like: expected names of layers of the model; got {name!r}")
    if note := _why_not(_apart(model), modules[name], "weight", None):
        raise ValueError(f"like: expected layers that can be exchanged; {name!r}: {note}")
    if f"{name}.columns" not in state:
        raise ValueError(f"like: expected masked layers, or a state dict; {name!r} has no mask")
    index = state[f"{name}.row_starts"], state[f"{name}.columns"]
    return Candidate(name, modules[name], "weight", None, form, index=index)


def _apart(model: nn.Module) -> dict[nn.Module, str]:
    """Return the modules that can only stay as they are because of where they are in `model`, with the reason."""
    attentions = [module for module in model.modules() if isinstance(module, nn.MultiheadAttention)]
    parts = [part for attention in attentions for part in (attention, attention.out_proj)]
    return {model: "the model itself, not a layer in it"} | dict.fromkeys(
        parts, "MultiheadAttention reads its weights itself"
    )


def _why_not(apart: Mapping[nn.Module, str], module: nn.Module, tensor: str, masked: MaskedTensor | None) -> str:
    """Say why a layer can only stay as it is, if so; `apart` has those that may not be replaced where they are."""
    kind = type(module) if masked is None else type(module).__bases__[0]
    if module in apart:
        return apart[module]
    if isinstance(module, nn.RNNBase | nn.RNNCellBase):
        return "recurrent layers read their weights themselves"
    if tensor != "weight" or kind not in (nn.Linear, *_CONVOLUTIONS):
        return f"not a layer of torch's: {kind.__name__}.{tensor}"
    if masked is not None and len(masked) > 1:
        return "another parametrization follows the mask"
    if "bias" in getattr(module, "parametrizations", ()):
        return "the bias has a mask or another parametrization"
    return why_special(module)


def why_special(module: nn.Module) -> str:
    """Say what a layer has beside its weight and its bias, if anything: a layer in its place would lose it."""
    if "forward" in vars(module):
        return "the layer has a forward of its own"
    held = (*module._parameters, *module._buffers, *module._modules)
    others = [name for name in held if name not in ("weight", "bias", "parametrizations", TRANSPARENT)]
    return f"the layer also holds {others[0]!r}" if others else ""


def has_taps(module: Any) -> bool:
    """Whether a layer is a convolution that is no linear layer over channels: of several taps, padded, or in groups."""
    if not isinstance(module, _CONVOLUTIONS):
        return False
    padded = module.padding not in ("valid", "same") and any(map(int, module.padding))
    return set(module.kernel_size) != {1} or module.groups > 1 or padded


def _without_kernel(form: str, module: nn.Module, weight: Tensor) -> str:
    """Say why the form has no kernel for the device and type of a weight, if so."""
    if form == "entries":
        if has_taps(module) and not has_convolutions():
            return "convolutions have no kernel: the package was built without a compiler"
        if weight.device.type not in ("cpu", "meta"):
            return f"single entries have no kernel on {weight.device.type}"
        if weight.dtype not in (torch.float32, torch.float64):
            return f"single entries have no kernel in {str(weight.dtype).removeprefix('torch.')}"
    elif weight.device.type == "cuda" and weight.dtype != torch.float64 and not has_kernel(weight.device, weight.dtype):
        return "blocks have no kernel here: Triton is not installed"
    elif weight.device.type not in ("cpu", "cuda", "meta"):
        return f"blocks have no kernel on {weight.device.type}"
    return ""
