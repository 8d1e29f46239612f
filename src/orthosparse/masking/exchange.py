"""Replace modules of a model, and their parameters in its optimizer, by others that compute the same."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch
from torch import nn

from orthosparse.distributed import is_sharded
from orthosparse.layers import leaf, unwrapped
from orthosparse.masking.masked_tensor import Mask, register_mask
from orthosparse.masking.optimizer_state import check_hand_over, hand_over, reshaped_state
from orthosparse.masking.transactions import undone_on_error
from orthosparse.modules.compact_module import Compact

P = ParamSpec("P")
R = TypeVar("R")
_HOOKS = (
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_backward_hooks",
    "_backward_pre_hooks",
    "_is_full_backward_hook",
)


def exchange(model: nn.Module, new: Mapping[nn.Module, nn.Module]) -> None:
    """Replace modules everywhere in `model` by those that they are mapped to, in the same mode and with their hooks."""
    for old, other in new.items():
        other.train(old.training)
        vars(other).update({name: vars(old)[name] for name in _HOOKS})
    for parent in model.modules():
        for name, child in parent._modules.items():
            if child is not None and child in new:
                parent._modules[name] = new[child]


def exchange_all(
    model: nn.Module, pairs: Iterable[tuple[nn.Module, nn.Module]], optimizer: torch.optim.Optimizer | None
) -> None:
    """Replace the first module of each pair by the second everywhere in `model`, and its weight in the optimizer.

    One of the two holds only active weights. If the call raises, nothing is changed.

    Raises:
        ValueError: a weight has hooks; nothing is changed.
    """
    pairs = list(pairs)
    for old, _ in pairs:
        _check_without_hooks(model, old)
    with undone_on_error(model, optimizer):
        exchange(model, dict(pairs))
        _carry_attributes(pairs)
        for old, new in pairs:
            state = reshaped_state(optimizer, _weight(old), _reshape(old, new))
            vars(_weight(new)).update(vars(_weight(old)))  # attributes that others have set on it
            hand_over(optimizer, _weight(old), _weight(new), state)


def _carry_attributes(pairs: list[tuple[nn.Module, nn.Module]]) -> None:
    """Set on new modules the attributes that others have set on the old ones, unless these have their own."""
    kinds = {type(new): new for _, new in pairs if isinstance(new, Compact)}
    usual = {kind: vars(new.plain()).keys() for kind, new in kinds.items()}
    for old, new in pairs:
        if isinstance(new, Compact):
            added = vars(old).keys() - usual[type(new)]
            new.carried = tuple(name for name in added if not hasattr(new, name))
        compact: Any = new if isinstance(new, Compact) else old
        vars(new).update({name: vars(old)[name] for name in compact.carried if name in vars(old)})


def _check_without_hooks(model: nn.Module, module: nn.Module) -> None:
    weight = _weight(module)
    if weight._backward_hooks or weight._post_accumulate_grad_hooks:
        name = next(name for name, held in model.named_modules() if held is module)
        raise ValueError(
            "model: expected weights without hooks, which belong to the parameters that are exchanged; that of "
            f"{name!r} has some: remove them, and register them on the new parameters"
        )


def _weight(module: nn.Module) -> nn.Parameter:
    return module.values if isinstance(module, Compact) else leaf(module, "weight")


def _reshape(old: nn.Module, new: nn.Module) -> Callable[..., torch.Tensor]:
    """Return a function from tensors of the shape of the old module's weight to those of the new one's."""
    if isinstance(old, Compact):
        return old.scatter
    assert isinstance(new, Compact)
    return lambda whole, **_: new.gather(whole)  # without a start: no unit is new


def compact_modules(model: nn.Module) -> dict[str, Compact]:
    """Return the modules of `model` that hold only active weights, by name in module order."""
    return {name: module for name, module in model.named_modules() if isinstance(module, Compact)}


def dense_form(module: Compact) -> nn.Module:
    """Return the plain layer of torch with the whole weight, zeros included, and the same bias parameter."""
    plain = module.plain()
    plain.weight = nn.Parameter(module.weight.detach(), requires_grad=module.values.requires_grad)
    plain.register_parameter("bias", module.bias)
    if module.values.grad is not None:
        plain.weight.grad = module.scatter(module.values.grad)
    return plain


def masked_form(module: Compact) -> nn.Module:
    """Return the masked layer with the same weights."""
    plain = dense_form(module)
    register_mask(plain, "weight", Mask(module.weight_mask))
    return plain


def uncompact(
    model: nn.Module, form: Callable[[Compact], nn.Module], optimizer: torch.optim.Optimizer | None = None
) -> None:
    """Replace every module of active weights by another form of it; the optimizer continues with the new parameters.

    Raises:
        ValueError: the state of the optimizer does not belong to single weights, or it does not hold all values, the
            values are sharded, or the model is itself such a module; nothing is changed.
    """
    compact = compact_modules(model)
    check_hand_over(optimizer, {name: module.values for name, module in compact.items()})
    for name, module in compact.items():
        if not name:
            raise ValueError(f"model: expected one around its layers; got a {type(module).__name__} itself")
        if is_sharded(module.values):
            raise ValueError(f"model: expected values that are not sharded; {name!r} is (before fully_shard, that is)")
    with torch.inference_mode(False):  # what is made in inference mode could not be trained
        exchange_all(model, [(module, form(module)) for module in compact.values()], optimizer)


@contextmanager
def masked_forms(model: nn.Module) -> Iterator[None]:
    """Replace the modules of active weights of `model` by masked layers while the block runs."""
    model = unwrapped(model)
    forms: dict[nn.Module, nn.Module] = {module: masked_form(module) for module in compact_modules(model).values()}
    exchange(model, forms)
    try:
        yield
    finally:
        exchange(model, {masked: compact for compact, masked in forms.items()})


def on_masked_forms(function: Callable[P, R]) -> Callable[P, R]:
    """Give a function, whose first argument is a model, masked layers in place of modules of active weights."""

    @wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        model: Any = args[0] if args else None
        if isinstance(model, Compact):
            return function(masked_form(model), *args[1:], **kwargs)  # type: ignore[arg-type]
        if not isinstance(model, nn.Module) or not compact_modules(unwrapped(model)):
            return function(*args, **kwargs)
        with masked_forms(model):
            return function(*args, **kwargs)

    return wrapper
