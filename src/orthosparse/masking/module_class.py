"""The class of a module with masks, which torch's parametrization makes for it: what it does in its own way."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from weakref import ref

import torch
from torch import Tensor, nn

from orthosparse.masking.state_dict import MaskedParameters
from orthosparse.parametrized import TRANSPARENT, leaf


def adapt(cls: Any, tensor: str) -> None:
    """Let a class that torch made for one module know of the mask of `tensor`."""
    setattr(cls, f"{tensor}_mask", property(lambda self: self.parametrizations[tensor].holder.mask))
    if cls.register_parameter is _register_parameter:
        return
    cls.register_parameter, cls.__getstate__, cls.apply = _register_parameter, _refuse_to_pickle, _watched_apply
    cls._distribute_module_applied = property(_refuse_to_distribute)
    if issubclass(cls, nn.RNNBase):
        cls.__deepcopy__, cls._init_flat_weights = _copier(cls.__deepcopy__), _init_flat_weights


def renewed(cls: type, *, without: tuple[str, ...] = (), bare: bool = False) -> type:
    """The class that parametrize gave to a module, as a new one: copies of the module share the old one.

    Args:
        without: attributes it shall not have.
        bare: the class as it was before, for a module that has no parametrization left.
    """
    injected = cls.__name__.startswith("Parametrized") and "__getstate__" in vars(cls)
    if injected and bare:
        return cls.__bases__[0]
    bases = cls.__bases__
    if not injected:  # FSDP2 puts its own class around that one
        bases = tuple(renewed(base, without=without, bare=bare) for base in bases)
        if bases == cls.__bases__:
            return cls
    own = {k: v for k, v in vars(cls).items() if k not in {*without, "__dict__", "__weakref__"}}
    return type(cls.__name__.replace("Parametrized", "") if bare else cls.__name__, bases, own)


def _register_parameter(self: nn.Module, name: str, param: nn.Parameter | None) -> None:
    """Register a parameter beside the masked ones of a module; what takes the place of one of those is refused."""
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
    with _reads(self) as reads:
        fn(self)
    written = [(name, value) for name, value in reads if not value.is_inference() and value._version]
    if lost := sorted({name for name, value in written if not _is_held(self, name, value)}):
        raise RuntimeError(
            f"apply: the function changed {', '.join(lost)} of {type(self).__name__} in place, which has no effect: a "
            "masked weight is computed whenever it is read; initialize before sparsify, or assign (module.weight = ...)"
        )
    return self


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


def _refuse_to_distribute(self: nn.Module) -> Any:
    """Answer torch's distribute_module, which asks before it changes anything."""
    raise RuntimeError(
        f"{type(self).__name__} has masks and cannot be divided among processes any more: parallelize_module first, "
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
