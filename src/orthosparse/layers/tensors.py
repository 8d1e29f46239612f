"""The tensors of one module: the parameters behind them (and their parametrizations), and the matrices they hold.

Parametrizations are masks or weight norm. The matrices are known for torch's modules and for stacks of experts; other
modules declare them.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd
from torch.nn.utils.parametrize import ParametrizationList

Facts = dict[str, Any]  # fields of a Layer: kind, parts, groups, transposed, biases, ...

_UP = ("gate_up_proj", "gate_proj", "up_proj")
_DOWN = "down_proj"
DECLARATION = "__orthosparse__"
_GATES = {nn.LSTM: 4, nn.GRU: 3, nn.RNN: 1, nn.LSTMCell: 4, nn.GRUCell: 3, nn.RNNCell: 1}
# torch's distributed checkpoints, FSDP and accelerate remove this name from every key. So whatever is registered under
# it has the name of the module around it, in state dicts of models and optimizers.
TRANSPARENT = "_checkpoint_wrapped_module"


class LeafParameters(nn.Module):
    """The parameters behind masked tensors of one module, under the names of those tensors."""


def leaf(module: nn.Module, tensor: str) -> nn.Parameter:
    """Return the parameter behind ``module.tensor``: the original one if the tensor is parametrized."""
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
    """Return the names of the parameters of one module that are not None, including parametrized ones."""
    own = [name for name, value in module._parameters.items() if value is not None]
    return [*own, *getattr(module, "parametrizations", ())]


def plain_modules(model: nn.Module, *, remove_duplicate: bool = True) -> Iterator[tuple[str, nn.Module]]:
    """Yield the named modules of `model`, except those that belong to parametrizations."""
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


def is_pruned(module: nn.Module, tensor: str) -> bool:
    """Whether a tensor has a mask of torch.nn.utils.prune."""
    return f"{tensor}_orig" in module._parameters and f"{tensor}_mask" in module._buffers


def is_computed(module: nn.Module, tensor: str) -> bool:
    """Whether a tensor is computed from parameters: by prune, or by the older weight norm or spectral norm."""
    return tensor not in tensor_names(module) and any(
        f"{tensor}_{part}" in module._parameters for part in ("orig", "v")
    )


def tensors_of(module: nn.Module, name: str, *, everything: bool) -> Iterator[tuple[str, Facts]]:
    """Yield the tensors of one module that hold matrices, each with the fields of its Layer.

    The declaration of a module comes first. Unknown modules without one yield all their matrices if `everything`.
    """
    declared = getattr(module, DECLARATION, None)
    if declared is not None:
        yield from _declared(module, name, declared)
    elif is_known(module):
        yield from _known(module)
    elif stacks := dict(expert_stacks(module)):
        yield from stacks.items()
    elif everything:
        for tensor in tensor_names(module):
            if has_one_leaf(module, tensor) and (value := leaf(module, tensor)).dim() >= 2:
                yield tensor, {"kind": "linear" if value.dim() == 2 else "conv", "parts": (value.shape[0],)}


def _declared(module: nn.Module, name: str, declared: Mapping[str, str]) -> Iterator[tuple[str, Facts]]:
    has = tensor_names(module)
    for tensor, layout in declared.items():
        where = f"{type(module).__name__}.{DECLARATION}: {f'{name}.{tensor}'.lstrip('.')!r}"
        if tensor not in has:
            if tensor in module._parameters:  # registered as None: this one was built without it
                continue
            raise ValueError(f"{where}: expected a parameter of the module ({', '.join(has)}); got {tensor!r}")
        words, shape = str(layout).split(), _shape(module, tensor)
        stacked = words[:1] == ["expert"]
        sides, taps = words[stacked : stacked + 2], words[stacked + 2 :]
        if sorted(sides) != ["in", "out"] or set(taps) - {"tap"} or (stacked and taps) or len(words) != len(shape):
            raise ValueError(
                f"{where}: expected one word per dimension of {tuple(shape)}: 'out in' or 'in out', then 'tap' for "
                f"each dimension of a kernel, or 'expert' before them for a stack of matrices; got {layout!r}"
            )
        facts = {"kind": "conv" if taps else "linear", "stacked": stacked, "transposed": sides[0] == "in"}
        yield tensor, {"parts": (shape[words.index("out")],), **facts}


def is_known(module: nn.Module) -> bool:
    """Whether the module is one of torch's modules with matrices, or Hugging Face's Conv1D."""
    known = (_ConvNd, nn.Linear, nn.MultiheadAttention, nn.RNNBase, nn.RNNCellBase)
    return isinstance(module, known) or _is_hugging_face_conv1d(module)


def _is_hugging_face_conv1d(module: nn.Module) -> bool:
    return any(kind.__name__ == "Conv1D" for kind in type(module).__mro__) and _is_there(module, "weight")


def _known(module: nn.Module) -> Iterator[tuple[str, Facts]]:
    has = tensor_names(module)
    bias = _present(has, "bias")
    if isinstance(module, _ConvNd | nn.Linear) and not _is_there(module, "weight"):
        return  # the weight is a buffer, which is not trained
    if isinstance(module, _ConvNd):
        facts = {"groups": module.groups, "transposed": isinstance(module, _ConvTransposeNd)}
        yield "weight", {"kind": "conv", "parts": (module.out_channels,), "biases": bias, **facts}
    elif isinstance(module, nn.Linear):
        yield "weight", {"kind": "linear", "parts": (module.out_features,), "biases": bias}
    elif isinstance(module, nn.MultiheadAttention):
        yield from _attention(module, has)
    elif isinstance(module, nn.RNNBase | nn.RNNCellBase):
        yield from _recurrent(module, has)
    else:
        out = _shape(module, "weight")[1]
        yield "weight", {"kind": "linear", "parts": (out,), "transposed": True, "biases": bias}


def _attention(module: nn.MultiheadAttention, has: list[str]) -> Iterator[tuple[str, Facts]]:
    d = module.embed_dim
    for tensor in ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight"):
        if _is_there(module, tensor):
            fused = tensor == "in_proj_weight"
            biases = _present(has, "in_proj_bias") if tensor in ("in_proj_weight", "q_proj_weight") else ()
            yield tensor, {"kind": "linear", "parts": (d, d, d) if fused else (d,), "biases": biases}


def _recurrent(module: nn.Module, has: list[str]) -> Iterator[tuple[str, Facts]]:
    gates = next(number for kind, number in _GATES.items() if isinstance(module, kind))
    names = module._flat_weights_names if isinstance(module, nn.RNNBase) else ["weight_ih", "weight_hh"]
    for tensor in names:
        if tensor.startswith("weight_") and _is_there(module, tensor):
            rows = _shape(module, tensor)[0]
            gate = 1 if tensor.startswith("weight_hr") else gates
            biases = _present(has, tensor.replace("weight", "bias"))
            yield tensor, {"kind": "recurrent", "parts": (rows // gate,) * gate, "biases": biases}


def _is_there(module: nn.Module, tensor: str) -> bool:
    return tensor in tensor_names(module) or is_computed(module, tensor)


def _shape(module: nn.Module, tensor: str) -> torch.Size:
    return (leaf if has_one_leaf(module, tensor) else getattr)(module, tensor).shape


def _present(names: list[str], name: str) -> tuple[str, ...]:
    return (name,) if name in names else ()


def expert_stacks(module: nn.Module) -> Iterator[tuple[str, Facts]]:
    """Yield the tensors of a module that are stacks of experts, each with the fields of its Layer.

    Transformers' experts hold ``down_proj`` and one or two of ``gate_up_proj``, ``gate_proj`` and ``up_proj``; an
    attribute of the module or their shapes say how they are stored. JetMoe's hold one ``weight``.
    """
    shapes = _shapes_3d(module)
    if "weight" in shapes and shapes["weight"] == _sizes(module, "num_experts", "output_size", "input_size"):
        yield "weight", _facts(module, "weight", shapes["weight"], transposed=False)
    transposed = _is_transposed(module, shapes)
    if transposed is not None:
        for name in shapes:
            if name in (*_UP, _DOWN):
                yield name, _facts(module, name, shapes[name], transposed=transposed)


def holds_unknown_experts(module: nn.Module) -> bool:
    """Whether a module has stacks of experts by their names, but it is unknown how they are stored."""
    names = _shapes_3d(module).keys()
    return _DOWN in names and not names.isdisjoint(_UP) and not any(True for _ in expert_stacks(module))


def _shapes_3d(module: nn.Module) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the 3-d parameters of a module."""
    leaves = {name: leaf(module, name) for name in tensor_names(module) if has_one_leaf(module, name)}
    return {name: tuple(parameter.shape) for name, parameter in leaves.items() if parameter.dim() == 3}


def _is_transposed(module: nn.Module, shapes: dict[str, tuple[int, ...]]) -> bool | None:
    """Whether the stacks are [experts, in, out]; None if they are not experts, or if that is unknown."""
    ups = [name for name in _UP if name in shapes]
    if not ups or _DOWN not in shapes:
        return None
    experts, first, second = shapes[_DOWN]
    declared = getattr(module, "is_transposed", None)
    fused = 2 if ups[0] == "gate_up_proj" else 1
    plain, swapped = (experts, fused * second, first), (experts, second, fused * first)
    if shapes[ups[0]] not in (plain, swapped):
        return None
    if isinstance(declared, bool):
        return declared
    if plain != swapped:
        return shapes[ups[0]] == swapped
    hidden = getattr(getattr(module, "config", module), "hidden_size", getattr(module, "hidden_dim", None))
    return None if hidden not in (first, second) or first == second else hidden == second


def _facts(module: nn.Module, name: str, shape: tuple[int, ...], *, transposed: bool) -> Facts:
    out = shape[2 if transposed else 1]
    biases = tuple(bias for bias in (f"{name}_bias",) if bias in tensor_names(module))
    facts = {"kind": "linear", "stacked": True, "transposed": transposed, "biases": biases}
    if name != "gate_up_proj":
        return facts | {"parts": (out,)}
    # The rows of gate and up follow one another, or alternate one by one.
    repeats = 1 if getattr(module, "is_concatenated", True) else out // 2
    return facts | {"parts": (out // 2, out // 2), "repeats": repeats}


def _sizes(module: nn.Module, *names: str) -> tuple[Any, ...]:
    return tuple(getattr(module, name, None) for name in names)
