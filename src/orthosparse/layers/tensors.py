"""Which tensors of one module hold matrices, and how they lie there: what torch's modules hold, what others declare."""

from collections.abc import Iterator, Mapping

import torch
from torch import nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from orthosparse.layers.experts import Facts, expert_stacks
from orthosparse.parametrized import has_one_leaf, leaf, tensor_names

DECLARATION = "__orthosparse__"
_GATES = {nn.LSTM: 4, nn.GRU: 3, nn.RNN: 1, nn.LSTMCell: 4, nn.GRUCell: 3, nn.RNNCell: 1}


def is_pruned(module: nn.Module, tensor: str) -> bool:
    """Whether a tensor has a mask of torch.nn.utils.prune."""
    return f"{tensor}_orig" in module._parameters and f"{tensor}_mask" in module._buffers


def is_computed(module: nn.Module, tensor: str) -> bool:
    """Whether a tensor is no parameter, but made of some: by prune, or the older weight norm and spectral norm."""
    return tensor not in tensor_names(module) and any(
        f"{tensor}_{part}" in module._parameters for part in ("orig", "v")
    )


def tensors_of(module: nn.Module, name: str, *, everything: bool) -> Iterator[tuple[str, Facts]]:
    """Yield the tensors of one module that hold matrices, each with the facts its Layer needs.

    A module that declares its tensors is taken at its word; of one that nobody knows, `everything` takes all matrices.
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
                f"{where}: expected a word for each side of {tuple(shape)}: 'out in' or 'in out', then 'tap' for each "
                f"side of a kernel, or 'expert' before them for a stack of matrices; got {layout!r}"
            )
        facts = {"kind": "conv" if taps else "linear", "stacked": stacked, "transposed": sides[0] == "in"}
        yield tensor, {"parts": (shape[words.index("out")],), **facts}


def is_known(module: nn.Module) -> bool:
    """Whether the module is one of torch's, or a Conv1D of Hugging Face's, that hold matrices."""
    known = (_ConvNd, nn.Linear, nn.MultiheadAttention, nn.RNNBase, nn.RNNCellBase)
    return isinstance(module, known) or _is_hugging_face_conv1d(module)


def _is_hugging_face_conv1d(module: nn.Module) -> bool:
    return any(kind.__name__ == "Conv1D" for kind in type(module).__mro__) and _is_there(module, "weight")


def _known(module: nn.Module) -> Iterator[tuple[str, Facts]]:
    has = tensor_names(module)
    bias = _present(has, "bias")
    if isinstance(module, _ConvNd | nn.Linear) and not _is_there(module, "weight"):
        return  # a buffer, say: nothing that trains
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
