"""Which matrices of a model were left dense, and why, in words."""

from collections.abc import Mapping

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from orthosparse.layers.experts import holds_unknown_experts
from orthosparse.layers.layer import Layer, layer_name, unwrapped
from orthosparse.layers.tensors import is_known, tensors_of
from orthosparse.parametrized import has_one_leaf, leaf, plain_modules, tensor_names


def left_dense(model: nn.Module, layers: Mapping[str, Layer]) -> dict[str, str]:
    """Return every matrix or kernel of `model` that is not among `layers`, by layer name, with the reason.

    Example:
        >>> model = nn.ModuleDict({"old": nn.Linear(2, 2).requires_grad_(False), "words": nn.Embedding(2, 2)})
        >>> left_dense(model, {})
        {'old': 'frozen', 'words': 'embedding'}
    """
    seen = {id(layer.parameter()) for layer in layers.values()}
    left = {}
    for module_name, module in plain_modules(unwrapped(model)):
        if _is_quantized(module):
            left[layer_name(module_name, "weight")] = "quantized"
        if is_known(module) and module._buffers.get("weight") is not None:
            left[layer_name(module_name, "weight")] = "buffer"
        facts = dict(tensors_of(module, module_name, everything=False))
        known, biases = set(facts), {bias for each in facts.values() for bias in each.get("biases", ())}
        computed = [
            name for name in {**dict.fromkeys(tensor_names(module)), **dict.fromkeys(known)} if _is_made(module, name)
        ]
        left |= {layer_name(module_name, tensor): "computed from several tensors" for tensor in computed}
        for tensor in (name for name in tensor_names(module) if has_one_leaf(module, name) and name not in biases):
            parameter = leaf(module, tensor)
            if id(parameter) not in seen and not is_lazy(parameter) and parameter.dim() >= 2:
                seen.add(id(parameter))
                # weight_v of an older weight norm belongs to a weight that was named already
                if not any(tensor.startswith(f"{name}_") for name in computed):
                    left[layer_name(module_name, tensor)] = _reason(module, parameter, known=tensor in known)
    return left


def _is_quantized(module: nn.Module) -> bool:
    """Whether torch's quantization exchanged the module for one that packs its weight, where no parameter is left."""
    quantized = ("torch.ao.nn.quantized", "torch.ao.nn.intrinsic.quantized", "torch.nn.quantized")
    return any(kind.__module__.startswith(quantized) for kind in type(module).__mro__) and hasattr(module, "weight")


def _is_made(module: nn.Module, tensor: str) -> bool:
    """Whether a matrix is no parameter of its own: weight norm of either kind, or a mask of torch.nn.utils.prune."""
    if has_one_leaf(module, tensor):
        return False
    with torch.no_grad():
        return bool(getattr(module, tensor).dim() >= 2)


def _reason(module: nn.Module, parameter: nn.Parameter, *, known: bool) -> str:
    if not parameter.numel():
        return "without entries"
    if not parameter.is_floating_point():
        return "quantized"
    if not parameter.requires_grad:
        return "frozen"
    if isinstance(module, nn.Embedding | nn.EmbeddingBag):
        return "embedding"
    if known:
        return "not selected"
    unknown = "holds experts of unknown layout" if holds_unknown_experts(module) else "declares no matrices"
    return f"in a {type(module).__name__}, which {unknown}"


def summarize(left: Mapping[str, str]) -> str:
    """Return what was left dense in one line, by reason, the first three names of each.

    Example:
        >>> summarize({"a": "frozen", "b": "embedding", "c": "frozen"})
        '2 frozen (a, c); 1 embedding (b)'
    """
    reasons: dict[str, list[str]] = {}
    for name, reason in left.items():
        reasons.setdefault(reason, []).append(name)
    return "; ".join(
        f"{len(names)} {reason} ({', '.join(names[:3])}{', ...' if len(names) > 3 else ''})"
        for reason, names in reasons.items()
    )
