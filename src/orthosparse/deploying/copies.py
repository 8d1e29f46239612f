"""Copy a model for inference, in eval mode and without masks; run the copy and compare outputs."""

from copy import deepcopy
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_leaves, tree_map

from orthosparse.checks import check_arguments, check_model, named_on_error
from orthosparse.distributed import is_sharded
from orthosparse.hardware import to_float64
from orthosparse.layers import is_pruned, unwrapped
from orthosparse.masking import bake
from orthosparse.substitution import copied

M = TypeVar("M", bound=nn.Module)
Arguments = tuple[tuple[Any, ...], dict[str, Any]]


def inference_copy(model: nn.Module, device: torch.device | None) -> nn.Module:
    """Return a copy of `model` in eval mode, without masks and gradients; the model is unchanged.

    Raises:
        TypeError: `model` is not a module.
        ValueError: a parameter is lazy or sharded or has no storage, a mask is followed by another parametrization, or
            is one of torch.nn.utils.prune.
    """
    model = unwrapped(check_model(model))
    for name, parameter in model.named_parameters():
        if is_lazy(parameter):
            raise ValueError("model: expected one whose layers have shapes; run the lazy modules on a batch first")
        if is_sharded(parameter) or parameter.is_meta:
            raise ValueError(f"model: expected whole weights in memory; {name!r} is sharded or on the meta device")
    for name, module in model.named_modules():
        if any(is_pruned(module, tensor.removesuffix("_orig")) for tensor in module._parameters):
            raise ValueError(
                f"model: {name!r} has a mask of torch.nn.utils.prune; import_prune_masks takes that over, "
                "torch.nn.utils.prune.remove makes it permanent"
            )
    copy = deepcopy(model)
    bake(copy)
    return copy.eval().requires_grad_(False).to(device)


def arguments_of(example: Any, device: torch.device | None) -> Arguments:
    """Return the arguments of a call of the model (see `check_arguments`), detached and on `device`."""
    arguments = check_arguments(example, "example")
    return tree_map(lambda value: value.detach().to(device) if isinstance(value, Tensor) else value, arguments)  # type: ignore[no-any-return]


def outputs_of(model: nn.Module, arguments: Arguments) -> list[Tensor]:
    """Return the floating-point tensors in the output of a model for copies of the arguments.

    Raises:
        ValueError: the model cannot take the arguments, or returns no such tensor.
    """
    args, kwargs = copied(arguments)
    with torch.inference_mode(), named_on_error("example"):
        result = model(*args, **kwargs)
    outputs = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor) and leaf.is_floating_point()]
    if not outputs:
        raise ValueError("model: expected one that returns floating-point tensors; got none")
    return outputs


def difference(outputs: list[Tensor], expected: list[Tensor]) -> float:
    """Return the largest difference, as a fraction of the largest expected output.

    Infinity if shapes differ, or if an entry is infinite or NaN in one of the two alone.

    Example:
        >>> difference([torch.tensor([1.0, 4.0])], [torch.tensor([2.0, 4.0])])
        0.25
    """
    if [x.shape for x in outputs] != [y.shape for y in expected]:
        return float("inf")
    pairs = [(to_float64(x), to_float64(y)) for x, y in zip(outputs, expected, strict=True) if x.numel()]
    scale = max((float(y.abs().nan_to_num(0.0, posinf=0.0).max()) for _, y in pairs), default=0.0)
    gap = max((_gap(x, y) for x, y in pairs), default=0.0)
    return gap / scale if scale else gap


def _gap(x: Tensor, y: Tensor) -> float:
    equal = (x == y) | (x.isnan() & y.isnan())
    return float((x - y).abs().masked_fill(equal, 0.0).nan_to_num(torch.inf, posinf=torch.inf).max())


def in_format(model: M, memory_format: torch.memory_format) -> M:
    """Return a copy of `model` whose 4-d parameters and buffers are in `memory_format`."""
    new = deepcopy(model)
    for tensor in [*new.parameters(), *new.buffers()]:  # torch's own `to` fails on 5-d tensors
        if tensor.dim() == 4:
            tensor.data = tensor.data.contiguous(memory_format=memory_format)
    return new
