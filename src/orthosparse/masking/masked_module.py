"""A module with masks: the class that torch's parametrization makes for it, its parameters and its state dict."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import Any
from weakref import ref

import torch
from torch import Tensor, nn

from orthosparse.distributed import shard_like, zero_off_
from orthosparse.layers import TRANSPARENT, LeafParameters, leaf


class MaskedParameters(LeafParameters):
    """The parameters of one module that have masks: ``weight`` and ``weight_mask`` in its state dict.

    Attributes:
        holders: the mask of each parameter (a ``Mask``), by the name of the tensor.
        copied: tensors that share their mask with an earlier one.
        handles: the handles of the hooks on the module that has the parameters.
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
            # safetensors drops a second key that shares its memory with the first.
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
        if mask is not None or holder.lost or value is None:  # without the weight, the mask is missing too
            self._buffers[f"{tensor}_mask"] = holder.mask
        if mask is not None:
            state[key] = mask.detach().clone()
        # A dense checkpoint has no mask: the present one stays.
        applied = mask if mask is not None else None if holder.lost else holder.mask
        if isinstance(value, Tensor) and value.shape == parameter.shape:
            # Without memory there is nothing to mask, and torch would import its compiler for it.
            if applied is not None and applied.shape == value.shape and not value.is_meta:
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
    """Yield the keys of each masked tensor of `module` and of its mask: as torch would have them, and as saved."""
    for tensor in _holders(module):
        for name in (tensor, f"{tensor}_mask"):
            yield f"{prefix}{TRANSPARENT}.{name}", prefix + name


def adapt(cls: Any, tensor: str) -> None:
    """Add what the mask of `tensor` needs to the class that torch made for one module."""
    setattr(cls, f"{tensor}_mask", property(lambda self: self.parametrizations[tensor].holder.mask))
    if cls.register_parameter is _register_parameter:
        return
    cls.register_parameter, cls.__getstate__, cls.apply = _register_parameter, _refuse_to_pickle, _watched_apply
    cls._distribute_module_applied = _Undivided(cls.__name__)
    if hasattr(cls, "reset_parameters"):
        cls.reset_parameters = _watched_reset(cls.reset_parameters)
    if issubclass(cls, nn.RNNBase):
        cls.__deepcopy__, cls._init_flat_weights = _copier(cls.__deepcopy__), _init_flat_weights


def renewed(cls: type, *, without: tuple[str, ...] = (), bare: bool = False) -> type:
    """The class that parametrize gave to a module, as a new one: copies of the module share the old one.

    Args:
        without: names of attributes to leave out.
        bare: whether to return the class from before, for a module that has no parametrization left.
    """
    injected = cls.__name__.startswith("Parametrized") and "__getstate__" in vars(cls)
    if injected and bare:
        return cls.__bases__[0]
    bases = cls.__bases__
    if not injected:  # FSDP2 puts its own class around that one
        bases = tuple(renewed(base, without=without, bare=bare) for base in bases)
        if bases == cls.__bases__:
            return cls
    attributes = {k: v for k, v in vars(cls).items() if k not in {*without, "__dict__", "__weakref__"}}
    return type(cls.__name__.replace("Parametrized", "") if bare else cls.__name__, bases, attributes)


def _register_parameter(self: nn.Module, name: str, param: nn.Parameter | None) -> None:
    """Register a parameter beside the masked ones of a module; raise if it would replace one of those."""
    holder = _holders(self).get(name.removeprefix(f"{TRANSPARENT}."))
    if holder is not None and getattr(param, "_is_param", None) is holder:
        return  # tied to it already
    if holder is not None:
        raise RuntimeError(f"{name!r} has a mask, which another parameter has not: write values into it, or bake")
    nn.Module.register_parameter(self, name, param)


def _watched_apply(self: nn.Module, fn: Callable[[nn.Module], None]) -> nn.Module:
    """Apply a function as torch does; raise where it wrote into a masked weight as it was read, which has no effect."""
    for child in self.children():
        child.apply(fn)
    with _no_lost_writes(self, "apply: the function"):
        fn(self)
    return self


def _watched_reset(reset: Callable[..., None]) -> Callable[..., None]:
    """The ``reset_parameters`` of a class, which would leave a masked weight as it was, as one that raises there."""

    @wraps(reset)
    def watched(self: nn.Module, *args: Any, **kwargs: Any) -> None:
        with _no_lost_writes(self, "reset_parameters: it"):
            reset(self, *args, **kwargs)

    return watched


@contextmanager
def _no_lost_writes(module: nn.Module, who: str) -> Iterator[None]:
    """Raise RuntimeError if a masked weight was written to in the block as it was read, which has no effect."""
    with _reads(module) as reads:
        yield
    written = [(name, value) for name, value in reads if not value.is_inference() and value._version]
    if lost := sorted({name for name, value in written if not _is_held(module, name, value)}):
        raise RuntimeError(
            f"{who} changed {', '.join(lost)} of {type(module).__name__} in place, which has no effect: a masked "
            "weight is computed whenever it is read; initialize before sparsify, or assign (module.weight = ...)"
        )


@contextmanager
def _reads(module: nn.Module) -> Iterator[list[tuple[str, Tensor]]]:
    """Yield a list to which every masked weight of the module is added when it is read."""
    reads: list[tuple[str, Tensor]] = []

    def listener(name: str) -> Callable[[Tensor], Tensor]:
        def listen(weight: Tensor) -> Tensor:
            reads.append((name, weight))
            return weight

        return listen

    quiet = {name: holder for name, holder in _holders(module).items() if holder.listener is None}
    for name, holder in quiet.items():
        holder.listener = listener(name)
    try:
        yield reads
    finally:
        for holder in quiet.values():
            if "listener" in vars(holder):  # tied tensors share one
                del holder.listener


def _is_held(module: nn.Module, name: str, value: Tensor) -> bool:
    """Whether the parameter holds `value` where its mask is true: it was assigned after it was changed."""
    with torch.no_grad():
        return torch.equal(torch.where(getattr(module, f"{name}_mask"), value, 0), getattr(module, name))


def _refuse_to_pickle(self: nn.Module) -> Any:
    raise RuntimeError(
        f"{type(self).__name__} has masks and cannot be pickled (as torch.save(model) would): save model.state_dict() "
        "and load_sparse it into a model as it was before sparsify, or bake the masks in"
    )


class _Undivided:
    """Answers torch's distribute_module, which asks whether this is true before it changes anything."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __bool__(self) -> bool:
        raise RuntimeError(
            f"{self.name} has masks and cannot be divided among processes any more: parallelize_module first, "
            "then sparsify, or load_sparse"
        )


def _copier(copy: Callable[..., nn.Module]) -> Callable[..., nn.Module]:
    """Deep copies of recurrent layers: their cache holds computed tensors, which cannot be copied."""

    def deepcopy(module: nn.RNNBase, memo: dict[int, Any]) -> nn.Module:
        module._flat_weights = _flat_leaves(module)
        return copy(module, memo)

    return deepcopy


def _init_flat_weights(self: nn.RNNBase) -> None:
    """Fill the cache of a recurrent layer; with the parameters themselves where masks are lost for the time being."""
    if any(holder.lost for holder in _holders(self).values()):
        self._flat_weights = _flat_leaves(self)
        # They are not what the next forward pass finds, so it fills the cache again.
        self._flat_weight_refs = [ref(weight) for weight in self._flat_weights]
    else:
        nn.RNNBase._init_flat_weights(self)


def _flat_leaves(module: nn.RNNBase) -> list[Any]:
    return [leaf(module, name) for name in module._flat_weights_names]


def _holders(module: nn.Module) -> Mapping[str, Any]:
    home = module._modules.get(TRANSPARENT)
    return home.holders if isinstance(home, MaskedParameters) else {}
