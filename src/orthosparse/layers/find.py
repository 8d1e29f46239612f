"""Find the tensors of a model to sparsify, as selected by the user, and say why the others are left dense."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from orthosparse.aliases import StructureName
from orthosparse.checks import check_model, check_structure
from orthosparse.layers.fused import FUSED, Split, check_split, with_parts
from orthosparse.layers.layer import Layer, layer_name, unwrapped
from orthosparse.layers.tensors import (
    has_one_leaf,
    holds_unknown_experts,
    is_known,
    is_pruned,
    leaf,
    plain_modules,
    tensor_names,
    tensors_of,
)
from orthosparse.registry import did_you_mean, is_glob, matches_pattern
from orthosparse.structures import ENTRIES, TWO_OF_FOUR, fitting

Selector = str | type[nn.Module] | Callable[[str, nn.Module], bool]


@dataclass(frozen=True)
class _Selectors:
    """Selectors of a model: the exact names among them, which are looked up all at once, and the others."""

    names: frozenset[str]
    others: tuple[Selector, ...]


def find_layers(
    model: nn.Module,
    *,
    include: Sequence[Selector] | Selector | None = None,
    exclude: Sequence[Selector] | Selector = (),
    split: Split | None = None,
    structure: StructureName | str = ENTRIES,
) -> dict[str, Layer]:
    """Return the layers of `model` to sparsify, by name, in module order.

    By default these are Linear, convolutions, attention projections, recurrent weights, Hugging Face's Conv1D, stacks
    of experts, and what your own modules declare. A class declares which of its parameters are matrices, and how they
    are stored, with ``__orthosparse__ = {"w_in": "in out", "w_out": "out in"}``: one word per dimension, ``tap`` for
    those of a kernel, and ``expert`` for the first one of a stack of matrices (``"expert out in"``). Embeddings (and
    tensors tied to them), norms, biases, frozen tensors and empty tensors are left out.

    If one Linear holds query, key and value, each of them is a matrix of its own. Their sizes are read from the
    surrounding module and its configuration. If these do not tell, the layer is one matrix, and its `note` says so.

    Args:
        include: only these layers. Modules that declare nothing are then included too, as stored ``out in``. Frozen
            tensors, and those tied to embeddings, are included only if you name the tensor, its module or a module
            around it; globs, types and callables skip them.
        exclude: all but these layers. A selector is the name of a module, a glob over names, a module type, or a
            callable ``(name, module) -> bool``; it selects the module and everything below it. A string may also name a
            tensor (``"mixer.weight_b"``).
        split: how tensors are split into fused matrices, by name or glob of the module or tensor: the number of equal
            parts, their output sizes, or ``{"parts": 3, "repeats": heads}`` if their rows alternate head by head. In a
            convolution with groups, each part is also split at the borders of the groups.
        structure: the units that are active or not: ``"entries"``; ``"block:64"`` for square blocks; or ``"2:4"`` for
            two of every aligned four along rows and along columns, which every layer must allow. A layer whose sides
            are not multiples of the block gets the largest smaller power of two that divides them, 16 or more. If there
            is none, if the kernel has several taps, or in stacks of experts, the units are entries.

    Raises:
        TypeError: a selector or a split has the wrong type.
        ValueError: a name or glob matches nothing, a split does not fit, a tensor cannot have a mask, the structure is
            unknown, or a side is not a multiple of four with ``"2:4"``.

    Example:
        >>> [*find_layers(nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 2)), exclude=["2"])]
        ['0']
    """
    check_structure(structure)
    model = unwrapped(check_model(model))
    wanted = None if include is None else _selectors(model, include, "include")
    unwanted = _selectors(model, exclude, "exclude")
    if split is not None:
        check_split(model, split)
    owners = _owners(model)
    layers: dict[int, Layer] = {}
    for layer in _candidates(model, everything=wanted is not None):
        if _is_selected(layer, unwanted, model) or not (wanted is None or _is_selected(layer, wanted, model)):
            continue
        _check_can_be_masked(layer)
        parameter = layer.parameter()
        named = wanted is not None and _is_named(layer, wanted)
        if not layer.numel or (_is_protected(layer, owners[id(parameter)]) and not named):
            continue
        if id(parameter) not in layers:
            tied = [(m, t) for m, t in owners[id(parameter)] if (m, t) != (layer.module, layer.tensor)]
            layer = replace(layer, tied=tuple(tied))
            if split or layer.module_name.rpartition(".")[2] in FUSED:
                layer = with_parts(layer, model, split or {})
            layers[id(parameter)] = replace(layer, structure=_fitting(structure, layer))
    unfit = [layer.name for layer in layers.values() if layer.structure != TWO_OF_FOUR]
    if structure == TWO_OF_FOUR and unfit:
        raise ValueError(f"structure: '2:4' takes matrices whose sides four divides; exclude {', '.join(unfit)}")
    return {layer.name: layer for layer in layers.values()}


def _selectors(model: nn.Module, given: Sequence[Selector] | Selector, argument: str) -> _Selectors:
    """Return the selectors, checked against the model."""
    single = isinstance(given, str | type) or _is_function(given)
    if not (single or (isinstance(given, Iterable) and not isinstance(given, nn.Module | Tensor | bytes))):
        raise TypeError(f"{argument}: expected one selector or a sequence of them; got {given!r}")
    selectors: list[Selector] = [given] if single else list(given)  # type: ignore[list-item, arg-type]
    parameters = model.named_parameters(remove_duplicate=False)
    known = dict.fromkeys(name for name, _ in (*model.named_modules(), *parameters) if name)
    for selector in selectors:
        if not (isinstance(selector, str | type) or _is_function(selector)):
            raise TypeError(f"{argument}: expected a name, a glob, a module type or a callable; got {selector!r}")
        if isinstance(selector, str) and not (selector in known or any(matches_pattern(selector, n) for n in known)):
            none = f"{selector!r} matches none of this model{did_you_mean(selector, known)}"
            raise ValueError(f"{argument}: expected names of modules; {none}")
    names = frozenset(selector for selector in selectors if isinstance(selector, str) and selector in known)
    return _Selectors(names, tuple(each for each in selectors if each not in names or is_glob(each)))


def _is_function(selector: object) -> bool:
    """Whether a selector is a callable; a module is callable too, but is not a selector."""
    return callable(selector) and not isinstance(selector, nn.Module)


def _is_selected(layer: Layer, selectors: _Selectors, model: nn.Module) -> bool:
    """Whether a selector matches the tensor of the layer, its module, or a module around it."""
    if _is_named(layer, selectors):
        return True
    around = _around(layer)
    for selector in selectors.others:
        if isinstance(selector, str):
            selected = any(matches_pattern(selector, name) for name in (*around, _tensor_name(layer)))
        elif isinstance(selector, type):
            selected = any(isinstance(model.get_submodule(name), selector) for name in around)
        else:
            selected = any(selector(name, model.get_submodule(name)) for name in around)
        if selected:
            return True
    return False


def _is_named(layer: Layer, selectors: _Selectors) -> bool:
    """Whether a selector is the exact name of the layer's tensor, its module, or a module around it."""
    return not selectors.names.isdisjoint((*_around(layer), _tensor_name(layer)))


def _around(layer: Layer) -> list[str]:
    """Return the name of the layer's module, and those of the modules around it."""
    names = layer.module_name.split(".")
    return [".".join(names[:i]) for i in range(len(names), 0, -1)]


def _tensor_name(layer: Layer) -> str:
    return f"{layer.module_name}.{layer.tensor}".lstrip(".")


def _fitting(structure: str, layer: Layer) -> str:
    """Return the structure that this layer gets if `structure` is asked for."""
    if structure == ENTRIES or layer.taps > 1 or layer.stacked:
        return ENTRIES
    pieces = [part // layer.repeats for part in layer.parts]  # numbers of adjacent rows
    return fitting(structure, [*pieces, *(side for shape in layer.shapes for side in shape)])


def _candidates(model: nn.Module, *, everything: bool) -> Iterator[Layer]:
    for module_name, module in plain_modules(model):
        for tensor, facts in tensors_of(module, module_name, everything=everything):
            yield Layer(layer_name(module_name, tensor), module, module_name, tensor, **facts)


def _is_protected(layer: Layer, owners: list[tuple[nn.Module, str]]) -> bool:
    """Whether a tensor is left out unless it is named: it is frozen, or tied to an embedding."""
    embeddings = (nn.Embedding, nn.EmbeddingBag)
    embedded = any(isinstance(module, embeddings) for module, _ in owners) and not isinstance(layer.module, embeddings)
    return embedded or not layer.parameter().requires_grad


def _check_can_be_masked(layer: Layer) -> None:
    if is_pruned(layer.module, layer.tensor):
        raise ValueError(
            f"model: {layer.name!r} has a mask of torch.nn.utils.prune; import_prune_masks takes that over, "
            "torch.nn.utils.prune.remove makes it permanent; or exclude it"
        )
    if not has_one_leaf(layer.module, layer.tensor):
        raise ValueError(
            f"model: {layer.name!r} is computed from several tensors (weight norm?); remove that, or exclude it"
        )
    if isinstance(layer.parameter(), nn.parameter.UninitializedParameter):
        raise ValueError(f"model: {layer.name!r} has no shape yet; run the lazy module on a batch first")


def _owners(model: nn.Module) -> dict[int, list[tuple[nn.Module, str]]]:
    """Return every (module, tensor) that holds a parameter, by the id of the parameter."""
    owners: dict[int, list[tuple[nn.Module, str]]] = {}
    for _, module in plain_modules(model):
        for tensor in tensor_names(module):
            if has_one_leaf(module, tensor):
                owners.setdefault(id(leaf(module, tensor)), []).append((module, tensor))
    return owners


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
        biases = {bias for each in facts.values() for bias in each.get("biases", ())}
        computed = [name for name in dict.fromkeys([*tensor_names(module), *facts]) if _is_made(module, name)]
        left |= {layer_name(module_name, tensor): "computed from several tensors" for tensor in computed}
        for tensor in (name for name in tensor_names(module) if has_one_leaf(module, name) and name not in biases):
            parameter = leaf(module, tensor)
            if id(parameter) not in seen and not is_lazy(parameter) and parameter.dim() >= 2:
                seen.add(id(parameter))
                # weight_v of the older weight norm belongs to a weight that is already in `left`
                if not any(tensor.startswith(f"{name}_") for name in computed):
                    left[layer_name(module_name, tensor)] = _reason(module, parameter, known=tensor in facts)
    return left


def _is_quantized(module: nn.Module) -> bool:
    """Whether this is a quantized module of torch, whose packed weight is not a parameter."""
    quantized = ("torch.ao.nn.quantized", "torch.ao.nn.intrinsic.quantized", "torch.nn.quantized")
    return any(kind.__module__.startswith(quantized) for kind in type(module).__mro__) and hasattr(module, "weight")


def _is_made(module: nn.Module, tensor: str) -> bool:
    """Whether a matrix is not a parameter but computed: by weight norm of either kind, or by torch.nn.utils.prune."""
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
    """Summarize `left_dense` in one line: for each reason, the number of tensors and the first three names.

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
