"""The parameters behind a module's tensors, seen through parametrizations (masks, weight norm) and by plain names."""

from collections.abc import Iterator

from torch import nn
from torch.nn.utils.parametrize import ParametrizationList

# Torch's distributed checkpoints, FSDP and accelerate drop this name from every key, wherever it stands: what is
# registered under it has the name of the module around it, for models and for optimizers.
TRANSPARENT = "_checkpoint_wrapped_module"


class LeafParameters(nn.Module):
    """The parameters behind masked tensors of one module, under the names of those tensors."""


def leaf(module: nn.Module, tensor: str) -> nn.Parameter:
    """Return the parameter behind ``module.tensor``: the original one where a parametrization stands before it."""
    parametrizations = getattr(module, "parametrizations", None)
    if parametrizations is not None and tensor in parametrizations:
        return parametrizations[tensor].original  # type: ignore[no-any-return]
    return module._parameters[tensor]  # type: ignore[return-value]


def has_one_leaf(module: nn.Module, tensor: str) -> bool:
    """Whether a tensor is one parameter, not computed from several as by weight norm."""
    parametrizations = getattr(module, "parametrizations", {})
    if tensor in parametrizations:
        return hasattr(parametrizations[tensor], "original")
    return module._parameters.get(tensor) is not None


def tensor_names(module: nn.Module) -> list[str]:
    """Return the parameters of one module that are there, those behind a parametrization included."""
    plain = [name for name, value in module._parameters.items() if value is not None]
    return [*plain, *getattr(module, "parametrizations", ())]


def plain_modules(model: nn.Module, *, remove_duplicate: bool = True) -> Iterator[tuple[str, nn.Module]]:
    """Yield the named modules of `model` that hold tensors of their own, not those behind a parametrization."""
    for name, module in model.named_modules(remove_duplicate=remove_duplicate):
        if not isinstance(module, ParametrizationList | LeafParameters):
            yield name, module


def plain_name(name: str) -> str:
    """Return a parameter's name without what a mask or another parametrization adds to it.

    Example:
        >>> plain_name("layers.0._checkpoint_wrapped_module.weight"), plain_name("0.parametrizations.weight.original")
        ('layers.0.weight', '0.weight')
    """
    name = name.replace(f"{TRANSPARENT}.", "")
    return name.replace("parametrizations.", "").removesuffix(".original") if "parametrizations." in name else name
