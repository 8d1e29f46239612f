"""State dicts with masks, loaded into a model that has none or others."""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from orthosparse.layers import layer_name, unwrapped
from orthosparse.masking.attach import attach
from orthosparse.masking.owners import check_masks, owners_of, parameters_of
from orthosparse.parametrized import leaf


def load_sparse(model: nn.Module, state: Mapping[str, Any], *, strict: bool = True, assign: bool = False) -> Any:
    """Load a state dict that holds masks, and put on `model` those it lacks.

    The prefixes that DistributedDataParallel and torch.compile put before every key are dropped.

    Returns:
        the missing and unexpected keys, as ``load_state_dict`` does.

    Raises:
        TypeError, ValueError: a mask that does not fit the model, which is unchanged.
        RuntimeError: `state` does not fit otherwise, as ``load_state_dict`` says it; no mask is put on.
    """
    model = unwrapped(model)
    rest, owners = _without_wrappers(state), owners_of(model)
    found: dict[int, tuple[str, Tensor]] = {}  # by parameter: tied tensors bring their one mask several times
    for module_name, module, tensor in parameters_of(model):
        key = f"{module_name}.{tensor}_mask".lstrip(".")
        if key in rest and not hasattr(module, f"{tensor}_mask"):
            mask = rest.pop(key)
            found.setdefault(id(leaf(module, tensor)), (layer_name(module_name, tensor), mask))
    masks = dict(found.values())
    check_masks(masks, owners)
    result = model.load_state_dict(rest, strict=strict, assign=assign)
    attach(model, masks)
    return result


def _without_wrappers(state: Mapping[str, Any]) -> OrderedDict[str, Any]:
    """A copy of the state dict without the prefixes that wrappers put before every key."""
    plain: OrderedDict[str, Any] = OrderedDict(state)
    for prefix in ("module.", "_orig_mod.", "module."):
        if plain and all(key.startswith(prefix) for key in plain):
            plain = OrderedDict((key.removeprefix(prefix), value) for key, value in plain.items())
    if len(plain) and next(iter(plain)) in state and hasattr(state, "_metadata"):
        plain._metadata = state._metadata  # type: ignore[attr-defined]
    return plain
