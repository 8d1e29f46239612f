"""The parameters behind the masks of one module, and the two keys that each has in a state dict."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from orthosparse.distributed import shard_like, zero_off_
from orthosparse.parametrized import TRANSPARENT, LeafParameters


class MaskedParameters(LeafParameters):
    """The parameters of one module that have masks: ``weight`` and ``weight_mask`` in its state dict.

    Attributes:
        holders: the mask of each parameter (a ``Mask``), by the name of the tensor.
        copied: tensors whose mask another one has as well.
        handles: of the hooks on the module around it.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.holders: dict[str, Any] = {}
        self.copied: set[str] = set()
        self.handles = [
            module.register_state_dict_post_hook(_drop_inner_name),
            module.register_load_state_dict_pre_hook(_add_inner_name),
        ]

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Yield the masks by their names in a state dict; distributed checkpoints ask each module for its own."""
        del recurse, remove_duplicate
        for tensor, holder in self.holders.items():
            yield f"{prefix}.{tensor}_mask".lstrip("."), holder.mask

    def add(self, tensor: str, parameter: nn.Parameter, holder: Any) -> None:
        """Take a parameter and the mask that it has from now on."""
        self._parameters[tensor], self.holders[tensor] = parameter, holder
        if holder.tensors:
            self.copied.add(tensor)
        holder.tensors += 1

    def remove(self, tensor: str) -> None:
        """Give a parameter up."""
        self.holders.pop(tensor).tensors -= 1
        self.copied.discard(tensor)
        del self._parameters[tensor]

    def zero_off_mask(self, tensor: str) -> None:
        """Zero a parameter off its mask, where something other than a gradient step may have written to it."""
        if not self.holders[tensor].lost:
            zero_off_(self._parameters[tensor], self.holders[tensor].mask)  # type: ignore[arg-type]

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        for tensor in self.holders:
            self.zero_off_mask(tensor)
        super()._save_to_state_dict(destination, prefix, keep_vars)
        for tensor, holder in self.holders.items():
            mask = holder.mask.detach()
            # safetensors takes a second key of one memory for one that need not be there.
            destination[f"{prefix}{tensor}_mask"] = mask.clone() if tensor in self.copied else mask

    def _load_from_state_dict(
        self, state: dict[str, Any], prefix: str, metadata: Any, strict: bool, *problems: list[str]
    ) -> None:
        found: tuple[list[str], ...] = ([], [], [])
        for tensor, holder in self.holders.items():
            self._prepare(tensor, holder, state, prefix, found[2])
        super()._load_from_state_dict(state, prefix, metadata, strict, *found)
        for tensor, holder in self.holders.items():
            loaded = self._buffers.pop(f"{tensor}_mask", None)
            if loaded is not None and f"{prefix}{tensor}_mask" in state:
                holder.mask, holder.lost = loaded, holder.lost and loaded.is_meta
        outer = prefix.removesuffix(f"{TRANSPARENT}.")
        for known, new in zip(problems, found, strict=True):
            known.extend(text.replace(prefix, outer) for text in new)

    def _prepare(self, tensor: str, holder: Any, state: dict[str, Any], prefix: str, errors: Any) -> None:
        """Mask the value that is to be loaded, and have the mask loaded like any other buffer."""
        value, key = state.get(prefix + tensor), f"{prefix}{tensor}_mask"
        mask, parameter = state.get(key), self._parameters[tensor]
        assert parameter is not None
        if mask is not None and getattr(mask, "dtype", None) is not torch.bool:
            errors.append(f"type mismatch for {key}: expected torch.bool; got {getattr(mask, 'dtype', type(mask))}.")
            del state[key]
            mask = None
        if mask is not None or holder.lost:
            self._buffers[f"{tensor}_mask"] = holder.mask
        if mask is not None:
            state[key] = mask.detach().clone()
        # A dense checkpoint has no mask: the one that is there stays.
        applied = mask if mask is not None else None if holder.lost else holder.mask
        if isinstance(value, Tensor) and value.shape == parameter.shape:
            if applied is not None and applied.shape == value.shape:
                value = torch.where(shard_like(applied.to(value.device), value), value.detach(), 0)
            state[prefix + tensor] = shard_like(value, parameter)


def _drop_inner_name(module: nn.Module, state: dict[str, Any], prefix: str, _: Any) -> None:
    for inner, outer in _names(module, prefix):
        if inner in state:
            state[outer] = state.pop(inner)


def _add_inner_name(module: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    for inner, outer in _names(module, prefix):
        if outer in state:
            state[inner] = state.pop(outer)


def _names(module: nn.Module, prefix: str) -> Iterator[tuple[str, str]]:
    """Yield the two keys of each masked tensor of `module`, as torch would have them and as they are."""
    home = module._modules.get(TRANSPARENT)
    if isinstance(home, MaskedParameters):
        for tensor in home.holders:
            for name in (tensor, f"{tensor}_mask"):
                yield f"{prefix}{TRANSPARENT}.{name}", prefix + name
