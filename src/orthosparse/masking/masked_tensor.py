"""One masked tensor of one module: the parametrization, how it is registered on a parameter, and how it is removed.

``module.weight`` is computed from the parameter that was there before, with exact zeros, in value and in gradient,
where the mask is false. The state dict holds ``weight`` and ``weight_mask``; this is the only user of
:mod:`torch.nn.utils.parametrize`.
"""

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from orthosparse.distributed import shard_like
from orthosparse.layers import TRANSPARENT
from orthosparse.masking.masked_module import MaskedParameters, adapt, renewed


class Mask(nn.Module):
    """Passes the weights where the bool buffer `mask` is true; the others, and their gradients, are exactly zero.

    Attributes:
        bypassed: whether the mask is skipped during a step, by a caller that keeps weights and gradients off the mask
            zero.
        listener: called with the masked weights, whose gradient is dense; the module uses what it returns. torch
            compiles one graph with a listener and one without. Copies have none.
    """

    mask: Tensor
    bypassed = False
    listener: Callable[[Tensor], Tensor] | None = None

    def __init__(self, mask: Tensor) -> None:
        super().__init__()
        self.register_buffer("mask", mask, persistent=False)  # MaskedParameters saves it
        self.lost = False  # whether the buffer holds uninitialized memory
        self.tensors = 0  # number of tensors with this mask; more than one when they are tied

    def forward(self, weight: Tensor) -> Tensor:
        """Return `weight` with zeros off the mask."""
        mask = self.mask
        if self.lost or (mask.is_meta and not weight.is_meta):
            raise RuntimeError("the mask was lost on the meta device; load a state dict that has it, or replace_masks")
        # where, not a product: what lies off the mask, in value or in gradient, may be infinite.
        masked = torch.where(shard_like(_without_version_check(mask), weight), weight, 0)
        return masked if self.listener is None else self.listener(masked)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "listener"}

    def right_inverse(self, value: Tensor) -> Tensor:
        """Return `value` with zeros off the mask: what the parameter holds."""
        return self.forward(value)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "Mask":
        before = self.mask
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.mask = self.mask.bool()  # Module.type() casts every buffer
        if not before.is_meta and self.mask is not before:
            self.mask.copy_(before)  # Module.to_empty() brings nothing along
        self.lost = not self.mask.is_meta and (self.lost or before.is_meta)
        return self

    def extra_repr(self) -> str:
        """Return the mask's shape."""
        return f"{tuple(self.mask.shape)}"


class MaskedTensor(parametrize.ParametrizationList):
    """A mask and the parameter behind it; unlike its base, it never exchanges that parameter's memory."""

    home: MaskedParameters

    def __init__(self, mask: Mask, home: MaskedParameters, tensor: str, order: list[str]) -> None:
        nn.ModuleList.__init__(self, [mask])
        self.unsafe, self.is_tensor, self.ntensors = False, True, 1
        self.tensor = tensor
        self.order = order  # of all the module's parameters, before any mask
        vars(self)["home"] = home  # not as a module within this one

    @property
    def holder(self) -> Mask:
        """The mask."""
        return self[0]  # type: ignore[return-value]

    @property
    def original(self) -> nn.Parameter:  # type: ignore[override]
        """The parameter."""
        return self.home._parameters[self.tensor]  # type: ignore[return-value]

    def append(self, module: nn.Module) -> "MaskedTensor":
        """Let another parametrization follow the mask.

        Raises:
            ValueError: it cannot compute a tensor from the masked one (weight norm needs two), or does not keep the
                zeros (an orthogonal parametrization).
        """
        expected = f"parametrization: expected one that keeps the zeros of the masked {self.tensor!r}"
        with torch.no_grad():
            value = self()
            try:
                value = deepcopy(module).eval()(value)  # a copy: the module itself is unchanged
            except Exception as error:
                raise ValueError(f"{expected}; {type(module).__name__} cannot compute it: {error}") from error
            if not self._is_zero_off_mask(value):
                raise ValueError(f"{expected}; {type(module).__name__} does not")
        return super().append(module)

    def _is_zero_off_mask(self, value: Any) -> bool:
        if not isinstance(value, Tensor) or value.shape != self.original.shape:
            return False
        return value.is_meta or not bool(torch.where(shard_like(self.holder.mask, value), 0, value).any())

    def forward(self) -> Tensor:
        """Return the tensor as the module uses it; what the base returns, with less Python overhead."""
        first: Any
        first, *later = self._modules.values()
        value: Any = self.home._parameters[self.tensor]
        if not first.bypassed:
            value = first(value)
        for module in later:
            value = module(value)
        if first.tensors > 1 and not torch.compiler.is_compiling():
            value._is_param = first  # true: Hugging Face's tie_weights looks for what it ties by get_parameter
        return value  # type: ignore[no-any-return]

    def zero_off_mask(self) -> None:
        """Zero the parameter off the mask, where something other than a gradient step may have written to it."""
        self.home.zero_off_mask(self.tensor)

    @torch.no_grad()
    def right_inverse(self, value: Tensor) -> None:
        """Write `value` into the parameter, with zeros off the mask."""
        if value.shape != self.original.shape:
            raise ValueError(f"value: expected shape {tuple(self.original.shape)}; got {tuple(value.shape)}")
        for module in reversed(list(self)):
            value = module.right_inverse(value)  # type: ignore[operator]
        self.original.copy_(shard_like(value, self.original))


class _Parametrizations(nn.ModuleDict):
    """The parametrizations of one module; a mask that is taken out of it, by torch too, leaves nothing behind."""

    def __delitem__(self, tensor: str) -> None:
        removed = self[tensor]
        super().__delitem__(tensor)
        if isinstance(removed, MaskedTensor):
            removed.home.remove(tensor)


def _without_version_check(mask: Tensor) -> Tensor:
    """Return the mask without its version counter: DDP writes to buffers in every forward pass, which is harmless."""
    if torch.compiler.is_exporting():  # an exported program refers to its buffers by name, not to a view of one
        return mask
    try:
        return mask.data
    except RuntimeError:  # a batch of masks under vmap
        return mask


def masked_tensors(module: nn.Module) -> Iterator[tuple[str, MaskedTensor]]:
    """The masked tensors of one module, by name."""
    if parametrize.is_parametrized(module):
        for tensor, masked in _table(module).items():
            if isinstance(masked, MaskedTensor):
                yield tensor, masked


def why_unmaskable(module: nn.Module, tensor: str) -> str | None:
    """Say why ``module.tensor`` cannot get a mask, if so."""
    if tensor in dict(masked_tensors(module)):
        return "has a mask already; replace_masks exchanges it"
    if parametrize.is_parametrized(module, tensor):
        return "has another parametrization; remove that first (spectral norm can be registered again after the mask)"
    if reason := why_unnameable(tensor):
        return reason
    dtype = module._parameters[tensor].dtype  # type: ignore[union-attr]
    if dtype.is_floating_point and dtype.itemsize == 1:
        return f"is of type {dtype}, which torch cannot mask"
    if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.sparse:
        return "has sparse gradients, which a mask cannot take; build the embedding with sparse=False"
    if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.max_norm is not None:
        return "is scaled in place to max_norm, which a masked tensor cannot be; build the embedding without it"
    if hasattr(module, f"{tensor}_mask"):
        return f"stands beside an attribute '{tensor}_mask' of the module's own"
    return None


def why_unnameable(tensor: str) -> str | None:
    """Say why no tensor of this name can get a mask, if so."""
    if hasattr(nn.ModuleDict, tensor):  # parametrizations lie in one, and are its attributes
        return f"has a name, {tensor!r}, that torch's parametrizations cannot have"
    return None


def register_mask(module: nn.Module, tensor: str, mask: Mask) -> MaskedTensor:
    """Turn the parameter ``module.tensor`` into a masked tensor."""
    original, order = module._parameters[tensor], _plain_order(module)
    assert original is not None
    first = not parametrize.is_parametrized(module)
    if not first:
        module.__class__ = renewed(type(module))
    # A placeholder goes through the registration, which would move the parameter to other memory.
    module._parameters[tensor] = nn.Parameter(torch.empty(()))
    parametrize.register_parametrization(module, tensor, nn.Identity(), unsafe=True)
    module.parametrizations.__class__ = _Parametrizations
    home = module._modules.get(TRANSPARENT) or MaskedParameters(module)
    assert isinstance(home, MaskedParameters)
    module._modules[TRANSPARENT] = home
    home.add(tensor, original, mask)
    _table(module)[tensor] = masked = MaskedTensor(mask, home, tensor, order)
    for members in (_table(module)._modules, home._parameters, home.holders):
        _sort(members, order)
    for child in (_table(module), home):
        child.train(module.training)
    adapt(type(module), tensor)
    return masked


def remove_mask(module: nn.Module, tensor: str) -> MaskedTensor:
    """Turn a masked tensor back into the parameter, with the zeros in it, and return the parametrization."""
    masked: MaskedTensor = _table(module)[tensor]
    original, home = masked.original, masked.home
    masked.zero_off_mask()
    del _table(module)[tensor]
    if not home.holders:
        for handle in home.handles:
            handle.remove()
        del module._modules[TRANSPARENT]
    last = not parametrize.is_parametrized(module)
    if last:
        del module.parametrizations
    module.__class__ = renewed(type(module), without=(tensor, f"{tensor}_mask"), bare=last)
    setattr(module, tensor, original)
    _sort(module._parameters, masked.order)
    return masked


def _plain_order(module: nn.Module) -> list[str]:
    """The module's parameters in the order they had before any mask: optimizers save their state in that order."""
    known = [name for _, masked in masked_tensors(module) for name in masked.order]
    return [*dict.fromkeys([*known, *module._parameters])]


def _sort(members: dict[str, Any], order: list[str]) -> None:
    for name in [name for name in order if name in members]:
        members[name] = members.pop(name)


def _table(module: nn.Module) -> Any:
    return module.parametrizations
